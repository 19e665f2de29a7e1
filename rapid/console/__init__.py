"""Show a workflow's state to its user: on Snakemake's console, and by `rapid watch`."""
