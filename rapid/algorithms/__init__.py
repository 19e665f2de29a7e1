"""The algorithms: one file each, and this registry.

To add one, write a file beside this one with a subclass of `base.Algorithm`: its name and label,
its parameters, its loss as a pure function of tensors, its look in figures, and what it asks of the
trainer. Then add it to `CURRENT`. Its section in params.yaml, its names (`NAME`, `NAME-H4`,
`NAME,epochs=2`), its training, its cost estimate and its rows and lines in reports follow from it.

A loss takes log-probabilities of the sampled tokens and returns a pair: the scalar to minimise,
whose gradient is the negative of the algorithm's estimator, and a dict of metrics (0-d tensors).
Shapes: N completions, T tokens; the completions of a group are contiguous rows.

Importing this package does not import torch: reports and the workflow need no more than names and
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
    "IMITATING",
    "PLAIN",
    "RAPID",
    "dapo_loss",
    "grpo_loss",
    "pg_loss",
    "rapid_loss",
]

IMITATING = Sft()  # supervised fine-tuning, which is not RL
PLAIN = Pg()  # the baseline of cost estimates and of the arena (comparison of all algorithms)
RAPID = Rapid()  # the paper's algorithm, used in sweeps and claims

# The order of algorithms in tables: the paper's baselines, later algorithms, RAPID.
BASELINES = (IMITATING, Grpo(), NaiveGrpo(), PLAIN, Dapo())
CURRENT = (
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
    algorithm.name: algorithm for algorithm in (*BASELINES, *CURRENT, RAPID)
}
