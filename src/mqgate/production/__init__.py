"""How a message gets in."""
