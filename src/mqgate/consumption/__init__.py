"""How a message reaches one consumer."""
