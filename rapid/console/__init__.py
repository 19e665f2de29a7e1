"""What a person sees of a workflow: Snakemake's console, and `rapid watch`."""
