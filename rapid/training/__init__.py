"""RapidTrainer and what it is made of.

config       RapidConfig: the paper's letters, the savings' switches, what contradicts itself
trainer      RapidTrainer: sample, grade, split into mini-batches, step
generation   what happens while transformers samples: shared prefill, log mu, streamed grading
rewards      reward functions called beside sampling
batches      mini-batches of whole groups, shared among processes and packed into passes
processes    what processes exchange
forward      log-probabilities of a pass
vllm         the weight sync of a vLLM engine in the same process
clock        where the time goes
"""
