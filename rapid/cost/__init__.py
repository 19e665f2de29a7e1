"""Estimates an experiment before it is run: seconds, GPU-hours, memory and disk of each job.

`work` counts what a job does, with a model of known `shapes` and what is `expected` of completions.
`roofline` computes seconds of it at the published rates of a GPU, or those of this machine, which
are `measured` in its runs; `memory` has the bytes. `estimates` does this for all jobs of the
pipeline, adds up, warns and advises, and `command` prints it all.
"""
