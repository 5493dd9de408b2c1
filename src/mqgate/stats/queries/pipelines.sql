SELECT * FROM stats_pipelines ORDER BY pipeline
