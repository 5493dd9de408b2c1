"""The pipelines: functions from frames to frames, and runners that read their input and store their output."""
