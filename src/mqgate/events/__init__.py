"""The gateway's own topic: what happened, as batches of rows."""
