"""Expectations of a run: how long completions are, and how many groups have a signal.

Values that the user sets count first, then those that runs showed, then the defaults here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import digamma

from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS

MEAN_LENGTH = 0.25  # tokens of a completion, as a share of the limit
VERDICTS = {name: benchmark.verdict_seconds for name, benchmark in BENCHMARKS.items()}


@dataclass(frozen=True)
class Expected:
    """Expectations of one model on one benchmark. Lengths are in tokens.

    Completions take (1 - spread) x mean, and an exponentially distributed rest, at most the limit:
    with a spread of 0 all are alike, and with 1 each token could be the last with the same
    probability.
    """

    limit: int  # of a completion's length
    length: float  # mean of completions, at most the limit
    spread: float = 1.0  # standard deviation of lengths over their mean
    prompt: float = 150.0  # mean length of prompts
    signal: float = 0.5  # share of groups whose rewards differ
    rewarded: float = 0.75  # share of groups with any reward; at least `signal`
    kept: float = 0.5  # share of the teacher's completions that are correct

    def longest(self, completions: float) -> float:
        """Return the mean length of the longest of so many completions, one or more.

        Of n exponentially distributed lengths it is 1 + 1/2 + ... + 1/n times their mean.
        """
        harmonic = digamma(max(1.0, completions) + 1) - digamma(1)
        return float(min(self.limit, self.length * (1 + self.spread * (harmonic - 1))))


def expect(limit: int, seen: Mapping[str, float], user: Mapping[str, float]) -> Expected:
    """Return what is expected of completions of at most `limit` tokens.

    Half of the groups without a signal are taken to be solved throughout, unless `rewarded` says
    otherwise.

    Args:
        seen: fields of `Expected` that runs showed.
        user: fields that the user sets; `length` as a share of the limit.

    Raises:
        BadInput: fewer groups have a reward than differ in their rewards.
    """
    values = {"length": MEAN_LENGTH * limit, "signal": Expected.signal} | seen | user
    scale = limit if "length" in user else 1.0
    values["length"] = min(limit, values["length"] * scale)
    rewarded = values.setdefault("rewarded", (1 + values["signal"]) / 2)
    if rewarded < user.get("signal", 0.0):
        raise BadInput(
            f"--rewarded {rewarded:g} is less than --signal {user['signal']:g}, but every "
            "group whose rewards differ has a reward: raise --rewarded"
        )
    values["signal"] = min(values["signal"], rewarded)
    return Expected(limit, **values)
