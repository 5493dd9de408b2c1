"""As rich.py."""

raise ImportError
