"""The algorithms: one file each, and this registry.

To add an algorithm, write a file in this folder with a subclass of `base.Algorithm`. It declares
the algorithm's name, label, parameters and style in figures, its loss as a pure function of
tensors, and what this loss needs from the trainer. Then add an instance to `LATER_ALGORITHMS`. The
pipeline can now train the algorithm, estimate its costs and report it, by the names `NAME`,
`NAME-H4` and `NAME,epochs=2`.

A loss takes log-probabilities of the sampled tokens. It returns the scalar to minimise, whose
gradient is minus the policy-gradient estimate grad J, and a dict of metrics (0-d tensors).
Shapes: N completions, T tokens; the completions of a group are contiguous rows.

Importing this package does not import torch, because reports and the workflow need only names and
parameters.
"""

from rapid.algorithms.asymre import Asymre
from rapid.algorithms.base import Algorithm
from rapid.algorithms.cispo import Cispo
from rapid.algorithms.dapo import Dapo, dapo_loss
from rapid.algorithms.dppo import Dppo
from rapid.algorithms.dr_grpo import DrGrpo
from rapid.algorithms.dro import Dro
from rapid.algorithms.geo_mask import GeoMask
from rapid.algorithms.grpo import Grpo, grpo_loss
from rapid.algorithms.gspo import Gspo
from rapid.algorithms.m2po import M2po
from rapid.algorithms.maxrl import MaxRl
from rapid.algorithms.naive_grpo import NaiveGrpo
from rapid.algorithms.oapl import Oapl
from rapid.algorithms.pg import Pg, pg_loss
from rapid.algorithms.rapid import Rapid, rapid_loss
from rapid.algorithms.rloo import Rloo
from rapid.algorithms.sapo import Sapo
from rapid.algorithms.sft import Sft
from rapid.algorithms.tis import Tis
from rapid.algorithms.topr import Topr
from rapid.algorithms.vcpo import Vcpo
from rapid.algorithms.vespo import Vespo

__all__ = [
    "ALGORITHMS",
    "PG",
    "RAPID",
    "SFT",
    "dapo_loss",
    "grpo_loss",
    "pg_loss",
    "rapid_loss",
]

SFT = Sft()  # supervised fine-tuning, which is not RL
PG = Pg()  # policy gradient, with which cost estimates and docs/arena.md compare the others
RAPID = Rapid()  # the paper's algorithm

# The order of algorithms in tables: the paper's baselines, algorithms of later papers, RAPID.
PAPER_BASELINES = (SFT, Grpo(), NaiveGrpo(), PG, Dapo())
LATER_ALGORITHMS = (
    Rloo(),
    MaxRl(),
    Asymre(),
    DrGrpo(),
    Gspo(),
    Sapo(),
    Cispo(),
    Dppo(),
    M2po(),
    Tis(),
    Topr(),
    Vespo(),
    GeoMask(),
    Vcpo(),
    Dro(),
    Oapl(),
)
ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm for algorithm in (*PAPER_BASELINES, *LATER_ALGORITHMS, RAPID)
}
