"""Leases and rate limits on Redis or Valkey, shared by all gateways. Every operation is one script."""
