"""RapidTrainer and its parts.

`trainer` is Algorithm 1 of the paper, and `config` has its settings. `generation` samples,
`rewards` grades, `micro_batches` splits mini-batches, and `forward` computes log-probabilities.
`trl` has all changes to TRL's behaviour.

Terms in code and comments:

group            N_group completions of one prompt; contiguous rows of a batch
graded group     a group in which every completion has a reward
signal           a group has signal if the rewards of its completions differ
inference batch  N_inference completions, sampled at once: the data of H optimizer steps
mini-batch       N_step completions in whole groups: the data of one optimizer step
H                optimizer steps per inference batch, N_inference / N_step
chunk            groups of a mini-batch whose loss is computed together
micro-batch      one forward and backward pass: a chunk, or some rows of a chunk that is too large
pi, log pi       the policy, and the log-probabilities of the sampled tokens under it (nats)
mu, log mu       the behaviour policy, which sampled the completions, and the log-probabilities
                 under it; pi is mu until the first optimizer step on the inference batch
reference        the policy before training, to which the KL term with coefficient beta refers
w, eta           a completion's importance weight pi / mu, and the bound to which it is clipped
engine           the vLLM instance that samples if `use_vllm` is set
objective        the algorithm whose loss is minimized, by its name in `rapid.algorithms`, or "trl"
                 for GRPOTrainer's own loss
"""
