"""Topics as DataFrames: the data source `mqgate` for Spark, and a session that suits it."""
