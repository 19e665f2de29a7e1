"""Cores, GPUs, memory and time that jobs request, and leases on cores and GPUs."""
