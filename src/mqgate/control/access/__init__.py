"""API keys and permissions."""
