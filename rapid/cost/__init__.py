"""What an experiment will cost, before it is run: time, GPU-hours, memory and disk of every job.

    sizes      the shapes of models
    lengths    how long completions are, and the longest of a batch
    expected   what nobody knows beforehand, as assumptions
    work       what a job does, counted: completions, decoding steps, tokens, passes
    roofline   seconds of that work on a named GPU, from published rates
    measured   seconds of that work at rates fitted to runs on disk (`runs`, `fit`)
    memory     bytes of GPU or process memory, and on disk
    estimates  all jobs of the pipeline together; `advice` on H and micro-batches; `text` prints

docs/plan.md has the formulas.
"""
