"""The control plane: what is registered, and who may do what."""
