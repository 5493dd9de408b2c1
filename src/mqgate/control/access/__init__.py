"""Keys, and what they open."""
