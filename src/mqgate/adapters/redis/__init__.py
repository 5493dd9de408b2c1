"""Leases on Redis or Valkey: shared by all gateways, one script a step."""
