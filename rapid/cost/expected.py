"""Expectations about a run's completions: how long they are, and how many are rewarded.

A group (the completions of one prompt) has a signal if its rewards differ; otherwise it has no
gradient. Values come from the user's options, else from earlier runs, else from the defaults here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import digamma

from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS

MEAN_LENGTH = 0.25  # mean length of completions, as a share of the limit
# Seconds of a verdict by benchmark.
VERDICTS = {name: benchmark.verdict_seconds for name, benchmark in BENCHMARKS.items()}


@dataclass(frozen=True)
class Expected:
    """Expectations about one model's completions on one benchmark. Lengths are in tokens.

    A completion's length is modelled as (1 - spread) x mean plus an exponentially distributed part
    of mean spread x mean, at most the limit. With a spread of 0 all completions have the same
    length. With a spread of 1 every token is the last one with the same probability.
    """

    limit: int  # largest length of a completion
    length: float  # mean length of completions, at most the limit
    spread: float = 1.0  # standard deviation of lengths over their mean
    prompt: float = 150.0  # mean length of prompts
    signal: float = 0.5  # share of groups whose rewards differ
    rewarded: float = 0.75  # share of groups with at least one reward; not less than `signal`
    kept: float = 0.5  # share of the teacher's completions that are correct

    def longest(self, completions: float) -> float:
        """Return the expected length of the longest among `completions` completions.

        The expected maximum of n exponentially distributed lengths is 1 + 1/2 + ... + 1/n times
        their mean.
        """
        harmonic = digamma(max(1.0, completions) + 1) - digamma(1)
        return float(min(self.limit, self.length * (1 + self.spread * (harmonic - 1))))


def expect(limit: int, seen: Mapping[str, float], user: Mapping[str, float]) -> Expected:
    """Return the expectations about completions of at most `limit` tokens.

    Unless `rewarded` is given, it is assumed that in half of the groups without a signal all
    completions are rewarded, and in the other half none.

    Args:
        seen: fields of `Expected` that were measured in runs.
        user: fields of `Expected` that the user sets and that replace those in `seen`. Here
            `length` is a share of the limit.

    Raises:
        BadInput: the share of groups with a reward is less than that of groups with a signal.
    """
    values = {"length": MEAN_LENGTH * limit, "signal": Expected.signal} | seen | user
    scale = limit if "length" in user else 1.0
    values["length"] = min(limit, values["length"] * scale)
    rewarded = values.setdefault("rewarded", (1 + values["signal"]) / 2)
    if rewarded < user.get("signal", 0.0):
        raise BadInput(
            f"--rewarded {rewarded:g} (share of groups with a reward) is less than --signal "
            f"{user['signal']:g} (share of groups whose rewards differ), which is impossible, "
            "because a group whose rewards differ has a reward: raise --rewarded"
        )
    values["signal"] = min(values["signal"], rewarded)
    return Expected(limit, **values)
