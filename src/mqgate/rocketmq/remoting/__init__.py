"""RocketMQ's wire format without any I/O: bytes in, commands out, and the other way round."""
