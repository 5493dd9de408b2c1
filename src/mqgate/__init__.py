"""mqgate: one HTTP door to message middleware."""

__version__ = "0.1.0"
