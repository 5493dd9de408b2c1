"""The native surface `/v1`."""
