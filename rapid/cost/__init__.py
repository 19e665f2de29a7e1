"""What an experiment will take before it is run: seconds, GPU-hours, memory and disk of each job.

`work` counts what a job does with a model of known `shapes` and what is `expected` of completions.
Counts become seconds at rates `measured` in runs of this machine, or at a GPU's published ones
(`roofline`); `memory` has the bytes. `estimates` does this for all jobs of the pipeline, adds up,
warns and advises, and `command` prints it all. Each module says its formulas.
"""
