"""The assumptions that a person can set, in order of what counts: set, seen in runs, usual."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.config.params import Params
from rapid.cost.expected import Expected
from rapid.cost.measured import Measured
from rapid.cost.work import Expect

# Where nothing is said and nothing was measured.
LENGTH, SPREAD, PROMPT, SIGNAL, KEPT = 0.25, 1.0, 150.0, 0.5, 0.5


class BadAssumption(BadInput):
    """An assumption out of its range."""


@dataclass(frozen=True)
class Assumptions:
    """What was set; None where it was not.

    Args:
        length: mean tokens of a completion, as a share of the limit.
        spread, prompt, signal, rewarded, kept: see `Expected`.
        verdict: seconds of one, by benchmark.
    """

    length: float | None = None
    spread: float | None = None
    prompt: float | None = None
    signal: float | None = None
    rewarded: float | None = None
    kept: float | None = None
    verdict: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self):
        if self.rewarded is not None and self.rewarded < (self.signal or 0.0):
            raise BadAssumption(
                f"--rewarded {self.rewarded:g} is less than --signal {self.signal:g}: groups whose "
                "rewards differ have a reward; raise --rewarded"
            )

    def expected(self, params: Params, measured: Measured | None = None) -> Expect:
        """What is expected of a benchmark and a model.

        Raises:
            BadAssumption: something was set of a benchmark that is not in params.yaml.
        """

        for name in self.verdict:
            if name not in params.benchmarks:
                raise BadAssumption(
                    f"--verdict-seconds {name}=...: no such benchmark; benchmarks: "
                    f"{', '.join(params.benchmarks)}"
                )

        def expect(benchmark: str, model: str) -> Expected:
            limit = params.benchmarks[benchmark].max_completion_length
            seen = measured.seen(benchmark, model) if measured else None
            return self.over(seen or usual(limit), limit)

        return expect

    def over(self, known: Expected, limit: int) -> Expected:
        """What is known, with what was set instead where it was."""
        signal = known.signal if self.signal is None else self.signal
        rewarded = known.rewarded if self.signal is None else signal + (1 - signal) / 2
        if self.rewarded is not None:
            rewarded = self.rewarded
        return Expected(
            length=known.length if self.length is None else self.length * limit,
            spread=known.spread if self.spread is None else self.spread,
            prompt=known.prompt if self.prompt is None else self.prompt,
            signal=min(signal, rewarded),
            rewarded=rewarded,
            kept=known.kept if self.kept is None else self.kept,
        )

    def verdicts(self, measured: Mapping[str, float] | None = None) -> dict[str, float]:
        """Seconds of a verdict by benchmark."""
        usual = {name: one.verdict_seconds for name, one in BENCHMARKS.items()}
        return {**usual, **(measured or {}), **self.verdict}


def usual(limit: int) -> Expected:
    """What is assumed of a benchmark with this limit of length, in tokens."""
    return Expected(LENGTH * limit, SPREAD, PROMPT, SIGNAL, SIGNAL + (1 - SIGNAL) / 2, KEPT)
