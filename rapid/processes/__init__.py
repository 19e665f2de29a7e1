"""Processes of jobs: the fork server, distributed training, locks, and ending with a parent."""
