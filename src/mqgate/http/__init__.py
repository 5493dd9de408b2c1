"""The HTTP API: server, middleware, route table and handlers."""
