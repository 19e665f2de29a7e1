"""Show a workflow to its user: Snakemake's console, and `rapid watch`."""
