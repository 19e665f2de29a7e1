"""RapidTrainer and its parts.

config       RapidConfig: the paper's letters, the savings' switches, refusals of contradictions
trainer      RapidTrainer: Algorithm 1, sample, grade, split into mini-batches, step
trl/         everything that bends TRL: the base class of RapidTrainer, the vLLM engine
caches       what a model keeps of its prompts
generation   sampling with transformers: prompts computed once, log mu, streamed grading
rewards      reward functions called beside sampling
batches      mini-batches of whole groups, shared among processes and packed into passes
processes    what processes exchange
forward      log-probabilities of a pass
metrics      means over the passes of a step
clock        wall-clock seconds by phase
recorder     records of steps, and models kept on the way
sft          supervised fine-tuning, with TRL's SFTTrainer
"""
