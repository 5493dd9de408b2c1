"""Topics, producers and groups."""
