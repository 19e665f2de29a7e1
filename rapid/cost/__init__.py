"""Estimates what an experiment costs before it runs: time, GPU-hours, memory and disk of each job.

1. `work` counts what a job does (tokens, decoding steps, optimizer steps), from its parameters, the
   sizes of its model (`shapes`) and expectations, such as the length of completions (`expected`).
2. `roofline` computes the seconds of this work, at the published rates of a GPU or at rates that
   were `measured` in earlier runs on this machine. `memory` computes the bytes of each process.
3. `estimates` does this for all jobs, adds the costs up, and finds jobs that do not fit into memory
   or need too many GPUs; `command` prints the plan.
"""
