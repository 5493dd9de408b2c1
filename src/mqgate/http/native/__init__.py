"""The native API `/v1`."""
