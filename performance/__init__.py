"""How fast RapidTrainer and the graders are, and what the time goes into: `make bench`.

bench         the command: which parts, how often, where to
gpu           `make gpu`, which needs no environment of ours
parts         the experiments, (a) to (n)
loops         training loops side by side, each in a process of its own, one running at a time
trainers      RapidTrainer and TRL's GRPOTrainer with the same settings
beside_trl    how near the gradient of GRPOTrainer comes to RAPID's
rewards       rewards of a set solve rate, and real ones
models        what is trained: models and problems
floor         what the work costs without a trainer
memory        the peak memory of one training loop, in a fresh process
operators     what kinds of operators a training loop's time goes into
graders       verdicts on programs, answers and proofs
summary       figures from samples: medians with quartiles
results       files: the summary that git keeps, and the samples, which it ignores
expectations  what RapidTrainer is expected to reach
growth        the figure of how the cost grows
report        the page, from the summary
"""
