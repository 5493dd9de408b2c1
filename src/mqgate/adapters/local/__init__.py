"""Ports that a single gateway serves from memory."""
