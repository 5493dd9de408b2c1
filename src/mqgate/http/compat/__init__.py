"""Dialects of other gateways, for their existing clients."""
