"""Processes of jobs: the fork server, distributed training, and processes that end with another."""
