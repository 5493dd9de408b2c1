"""The outside world: one folder per technology, one file per port."""
