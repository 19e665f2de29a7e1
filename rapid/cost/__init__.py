"""Estimates what an experiment will cost: time, GPU-hours, memory and disk of each job.

1. `work` counts what a job does (tokens, decoding steps, optimizer steps). The counts follow from
   its parameters and from expectations, such as the length of completions (`expected`).
2. `roofline` computes the seconds of this work from the sizes of the model (`shapes`), and from the
   published rates of a GPU (operations and bytes per second) or rates `measured` in earlier runs.
   `memory` computes bytes.
3. `estimates` does this for all jobs, adds the costs up, and finds jobs that do not fit into memory
   or need too many GPUs; `command` prints the plan.

An inference batch has the completions of H optimizer steps, which are sampled together. With
`reuse` each completion is used in several steps. A step's completions are processed in
micro-batches, with a forward and a backward pass each. A group has the completions of one prompt,
and has a signal if its rewards differ. Groups without a gradient, usually those without a
signal, are skipped.
"""
