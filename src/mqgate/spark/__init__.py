"""Topics as DataFrames: the Spark data source `mqgate`, and a preconfigured Spark session."""
