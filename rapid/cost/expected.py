"""What cannot be known before a run: how long completions are, and how many groups have a signal.

Assumptions that a person can set, or measured in other runs. What follows from them for an algorithm
is here too: which share of its groups is run, and what dynamic sampling draws anew.
"""

from dataclasses import dataclass

from rapid.algorithms.names import parse
from rapid.config.specs import TrainSpec
from rapid.cost.lengths import Lengths


@dataclass(frozen=True)
class Expected:
    """Of one model on one benchmark.

    Args:
        length: mean tokens of a completion.
        spread: of lengths, see `Lengths`.
        prompt: mean tokens of a prompt.
        signal: share of groups whose rewards differ.
        rewarded: share of groups with any reward; at least `signal`.
        kept: share of the teacher's completions that are correct.
    """

    length: float
    spread: float
    prompt: float
    signal: float
    rewarded: float
    kept: float

    def lengths(self, limit: int) -> Lengths:
        return Lengths(min(self.length, limit), self.spread, limit)


@dataclass(frozen=True)
class Round:
    """One round of sampling groups for an optimizer step: how likely, and how many groups then."""

    probability: float
    groups: float


def rounds(spec: TrainSpec, expected: Expected) -> list[Round]:
    """The rounds in which a step's groups are sampled; only dynamic sampling has more than one.

    Each round draws the groups that are still without signal, until none is or the rounds are over.
    """
    groups = spec.n_step / spec.training.group_size
    count = parse(spec.run.algorithm).algorithm.rounds(spec.objective)
    found = []
    for number in range(count):
        dead = (1 - expected.signal) ** number  # of one group, before this round
        probability = 1 - (1 - dead) ** groups
        if probability > 0:
            found.append(Round(probability, groups * dead / probability))
    return found


def run_share(spec: TrainSpec, expected: Expected) -> float:
    """Return the mean share of groups that may have a gradient. The others are not run."""
    algorithm, objective = parse(spec.run.algorithm).algorithm, spec.objective
    shares = {"unequal": expected.signal, "rewarded": expected.rewarded, "all": 1.0}
    if (count := algorithm.rounds(objective)) > 1:
        shares["unequal"] = 1 - (1 - expected.signal) ** count
    first, later = (shares[algorithm.gradient_groups(objective, known)] for known in (True, False))
    return first if first == later else (first + (spec.H - 1) * later) / spec.H
