"""Alarms: rules, evaluation by one gateway, and delivery to channels."""
