"""Implementations of the ports on RocketMQ."""
