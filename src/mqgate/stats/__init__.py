"""What the pipelines found out, in SQL tables: written by Spark's driver, shown by gateways."""
