"""How fast RapidTrainer and the graders are, and what the time goes into: `make bench`.

bench      the command: which parts, how often, where to
parts      the experiments, (a) to (g)
runs       two training loops side by side, each in a process of its own, one running at a time
trainers   RapidTrainer and TRL's GRPOTrainer with the same settings
rewards    rewards of a set solve rate, and real ones
models     what is trained: models and problems
floor      what the work costs without a trainer
memory     the peak memory of one training loop, in a fresh process
graders    verdicts on programs, answers and proofs
results    JSON files: raw samples and where they come from
report     the tables, from the JSON files
"""
