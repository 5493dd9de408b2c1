"""Notifications by signed HTTP requests."""
