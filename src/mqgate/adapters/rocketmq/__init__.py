"""The ports on RocketMQ."""
