"""Expectations about a run's completions: how long they are, and how many are rewarded.

A value comes from the user's options, else from earlier runs, else from the defaults here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import digamma

from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS

MEAN_LENGTH = 0.25  # mean length of completions, as a share of the limit
# Seconds of a verdict in one thread by benchmark, if none was measured.
DEFAULT_VERDICT_SECONDS = {
    name: benchmark.verdict_seconds for name, benchmark in BENCHMARKS.items()
}


@dataclass(frozen=True)
class Expected:
    """Expectations about one model's completions on one benchmark. Lengths are in tokens.

    A completion's length is modelled as the sum of a constant, (1 - spread) x mean, and an
    exponentially distributed part whose mean is spread x mean, cut off at the limit. With a spread
    of 0 all completions have the same length. With a spread of 1 a completion ends at each token
    with the same probability.
    """

    limit: int  # largest length of a completion
    length: float  # mean length of completions, at most the limit
    spread: float = 1.0  # standard deviation of lengths, divided by their mean
    prompt: float = 150.0  # mean length of prompts
    signal: float = 0.5  # share of groups whose rewards differ
    rewarded: float = 0.75  # share of groups with at least one reward; not less than `signal`
    kept: float = 0.5  # share of the teacher's completions that are correct

    def estimate_longest(self, completions: float) -> float:
        """Return the expected length of the longest of `completions` completions.

        The expected maximum of n exponentially distributed lengths is 1 + 1/2 + ... + 1/n times
        their mean.
        """
        harmonic = digamma(max(1.0, completions) + 1) - digamma(1)
        return float(min(self.limit, self.length * (1 + self.spread * (harmonic - 1))))


def expect(
    limit: int, measured_values: Mapping[str, float], user_values: Mapping[str, float]
) -> Expected:
    """Return the expectations about completions of at most `limit` tokens.

    If `rewarded` is not set, half of the groups without a signal are assumed to have only rewarded
    completions, and the other half none.

    Args:
        measured_values: fields of `Expected` that were measured in runs.
        user_values: fields of `Expected` that the user sets. They replace measured ones. Here
            `length` is a share of the limit.

    Raises:
        BadInput: the share of groups with a reward is less than that of groups with a signal.
    """
    defaults = {"length": MEAN_LENGTH * limit, "signal": Expected.signal}
    values = defaults | measured_values | user_values
    scale = limit if "length" in user_values else 1.0
    values["length"] = min(limit, values["length"] * scale)
    rewarded = values.setdefault("rewarded", (1 + values["signal"]) / 2)
    if rewarded < user_values.get("signal", 0.0):
        raise BadInput(
            f"--rewarded {rewarded:g} (share of groups with a reward) is less than --signal "
            f"{user_values['signal']:g} (share of groups whose rewards differ), which is "
            "impossible, because a group whose rewards differ has a reward: raise --rewarded"
        )
    values["signal"] = min(values["signal"], rewarded)
    return Expected(limit, **values)
