"""The cores, GPUs, memory and time that jobs request; and locks that give a job cores and GPUs."""
