"""Timers, dead letters, idempotency keys and control data in PostgreSQL, shared by all gateways."""
