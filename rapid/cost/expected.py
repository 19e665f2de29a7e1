"""What nobody knows before a run: how long completions are, and how many groups have a signal.

What a person sets counts first, then what runs showed, then what is usual: the defaults here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainc, gammaincc

from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS

USUAL_LENGTH = 0.25  # mean tokens of a completion, as a share of the limit
VERDICTS = {name: one.verdict_seconds for name, one in BENCHMARKS.items()}
LEAST_SPREAD = 0.02  # below it, lengths are all alike


@dataclass(frozen=True)
class Expected:
    """What is expected of one model on one benchmark; the defaults are usual.

    Lengths are in tokens. They follow a gamma distribution that the limit cuts.
    """

    limit: int  # of a completion's length
    length: float  # mean of completions, after the cut
    spread: float = 1.0  # of lengths before the cut: standard deviation over mean
    prompt: float = 150.0  # mean length of prompts
    signal: float = 0.5  # share of groups whose rewards differ
    rewarded: float = 0.75  # share of groups with any reward; at least `signal`
    kept: float = 0.5  # share of the teacher's completions that are correct

    @property
    def mean(self) -> float:
        """Mean length of completions, at most the limit."""
        return min(self.length, self.limit)

    def longest(self, completions: float) -> float:
        """Return the mean length of the longest of so many completions, one or more.

        With a spread of 0 all are alike. With 1 they are memoryless, as if each token could be the
        last with the same probability.
        """
        if self.spread < LEAST_SPREAD or self.length >= self.limit:
            return self.mean
        shorter = _distribution(self.length, self.spread, self.limit)  # (limit,)
        return float((1 - shorter ** max(1.0, completions)).sum())

    def changed(self, given: Mapping[str, float]) -> "Expected":
        """Return the same with what a person gave instead.

        Args:
            given: values of these fields; `length` as a share of the limit.

        Raises:
            BadInput: fewer groups have a reward than differ in their rewards.
        """
        values = asdict(self) | given
        if "length" in given:
            values["length"] *= self.limit
        if "signal" in given and "rewarded" not in given:
            values["rewarded"] = halfway(given["signal"])
        if "rewarded" in given and given["rewarded"] < given.get("signal", 0.0):
            raise BadInput(
                f"--rewarded {given['rewarded']:g} is less than --signal {given['signal']:g}: "
                "groups whose rewards differ have a reward; raise --rewarded"
            )
        values["signal"] = min(values["signal"], values["rewarded"])
        return Expected(**values)


@cache
def _distribution(mean: float, spread: float, limit: int) -> np.ndarray:
    """Return the probabilities of lengths of at most 0.5, 1.5, ..., limit - 0.5 tokens."""
    shape, at = spread**-2, np.arange(limit) + 0.5

    def excess(scale: float) -> float:
        return float(gammaincc(shape, at / scale).sum()) - mean

    low, high = mean / shape / 4, mean / shape
    while excess(high) < 0:
        high *= 2
    return gammainc(shape, at / brentq(excess, low, high))


def halfway(signal: float) -> float:
    """Return the share of groups with a reward, if half of those without signal are all right."""
    return signal + (1 - signal) / 2


def usual(limit: int) -> Expected:
    """Return what is assumed of a benchmark with this limit of tokens."""
    return Expected(limit, USUAL_LENGTH * limit)
