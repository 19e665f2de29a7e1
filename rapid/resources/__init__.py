"""The cores, GPUs, memory and time that jobs request, and leases of cores and GPUs."""
