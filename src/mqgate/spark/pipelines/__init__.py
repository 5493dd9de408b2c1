"""The pipelines: functions from frames to frames, and thin runners that feed them and store what they give."""
