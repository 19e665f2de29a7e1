"""What an experiment will take before it is run: seconds, GPU-hours, memory and disk of each job.

How the time of a job is estimated:

1. `shapes` tells the sizes of its model.
2. `expected` says what nobody knows beforehand: how long completions are (a gamma distribution
   that the limit cuts) and how many groups have a signal. A person sets it, runs show it, or it is
   usual.
3. `work` counts what the job does with these: decoding steps, rows of these steps, optimizer steps,
   tokens of passes, inference batches, completions to grade.
4. Counts become seconds in one of two ways. `measured` multiplies them with rates fitted to runs of
   this machine (`runs` reads these). `roofline` takes a named GPU's published rates: each part is
   as slow as what bounds it, memory or arithmetic.

How its memory is estimated (`memory`):

1. What stays: weights, gradients, Adam's state and the weights of a reference model.
2. The larger of two phases: the activations of one pass, or the keys and values of sampling.
3. What a process holds without a model: measured, or a GPU's usual context.

`estimates` does this for all jobs of the pipeline, adds up and warns; `advice` is on H and
micro-batches; `command` prints it all, or with `--check` what runs took beside what was predicted.
docs/plan.md has the formulas.
"""
