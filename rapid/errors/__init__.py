"""Turns exceptions that end a command into messages and exit statuses."""
