"""The control plane: registered entries and permissions."""
