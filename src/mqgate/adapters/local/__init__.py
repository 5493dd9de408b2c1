"""Within one process: what the embedded engine needs no store for."""
