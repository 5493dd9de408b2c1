"""The wire format of RocketMQ, without I/O: it converts bytes to commands and commands to bytes."""
