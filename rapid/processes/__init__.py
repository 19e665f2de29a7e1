"""Processes of jobs: the fork server, distributed training, locks, and when processes end."""
