"""Shows a workflow's state: on Snakemake's console, and by `rapid watch`."""
