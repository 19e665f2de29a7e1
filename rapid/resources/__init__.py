"""Cores, GPUs, memory and time: what a job requests, and the leases that it holds."""
