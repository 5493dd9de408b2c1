"""The HTTP faces: ASGI, thin endpoints, one table of operations."""
