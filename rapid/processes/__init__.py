"""Processes of jobs: the fork server, several for one training job, and who ends with whom."""
