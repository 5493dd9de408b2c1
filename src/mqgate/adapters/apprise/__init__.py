"""Notifications by apprise: chat services, e-mail and more."""
