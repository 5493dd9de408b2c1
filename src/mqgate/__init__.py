"""mqgate: an HTTP gateway for message queues."""

__version__ = "0.1.0"
