"""The paper's objectives and its baselines', as pure functions of tensors.

Every function takes log-probabilities of the sampled tokens and returns a pair: the scalar to
minimise, whose gradient is the negative of the algorithm's estimator, and a dict of metrics (0-d
tensors). Shapes: N completions, T tokens; the completions of a group are contiguous rows.

    rapid  importance-weighted group-relative policy gradient (paper, Algorithm 1)
    pg     group-relative policy gradient, on-policy (paper, section 3.3)
    grpo   clipped token ratios, advantages over the group's standard deviation, KL to a reference
    dapo   clipped higher than lower, averaged over tokens, no KL

`contributes` says which groups have a gradient at all.
"""

from rapid.objectives.dapo import dapo_loss
from rapid.objectives.grpo import grpo_loss
from rapid.objectives.pg import pg_loss
from rapid.objectives.rapid import rapid_loss
from rapid.objectives.zero import contributes

__all__ = ["contributes", "dapo_loss", "grpo_loss", "pg_loss", "rapid_loss"]
