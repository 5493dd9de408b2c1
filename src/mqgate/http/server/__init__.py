"""HTTP/1.1 server: parsing, connection limits, deadlines, graceful stop. It runs one ASGI application."""
