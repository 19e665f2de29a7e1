"""Seconds of counted work at rates measured on a machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

from rapid.cost.expected import Expected
from rapid.cost.seconds import Seconds, grading_seconds
from rapid.cost.sizes import Shape
from rapid.cost.work import Work

FAR = 2  # times another's size: no longer as fast


@dataclass(frozen=True)
class Rates:
    """Seconds of one model's work.

    Args:
        decoding: a decoding step, whatever the batch.
        row: a sequence in a decoding step.
        step, token: an optimizer step of RL; a token of a forward and backward pass.
        batch, loop: an inference batch; an optimizer step's bookkeeping.
        reference: a token of a forward pass without gradient.
        sync: weights to the sampler, an inference batch.
        imitated: a token of supervised training.
    """

    decoding: float
    row: float
    step: float
    token: float
    batch: float
    loop: float
    reference: float
    sync: float
    imitated: float


@dataclass(frozen=True)
class Measured:
    """Rates by model; seconds of a verdict and of start-up by benchmark; and what was seen in the runs.

    Args:
        runs: how many there were.
        expected: by (benchmark, model).
        base_memory: resident bytes of a process besides what its model's size explains.
    """

    hardware: str
    runs: int
    rates: Mapping[str, Rates]
    shapes: Mapping[str, Shape]
    verdict: Mapping[str, float]
    startup: Mapping[str, float]
    expected: Mapping[tuple[str, str], Expected]
    base_memory: float

    def seconds(self, work: Work) -> Seconds:
        rates = self.rates[self.nearest(work.model)]
        sampling = sum(
            one.calls * (one.steps * rates.decoding + one.rows * rates.row) for one in work.sampling
        )
        backpropagation = other = 0.0
        if one := work.training:
            if one.imitates:
                backpropagation = one.tokens * rates.imitated
            else:
                backpropagation = one.steps * rates.step + one.tokens * rates.token
                backpropagation += one.forward_tokens * rates.reference
                other = one.steps * rates.loop + one.reference_tokens * rates.reference
            other += work.sampling_batches * rates.batch
        verdict = _of(self.verdict, work.benchmark)
        return Seconds(
            sampling=sampling,
            grading=grading_seconds(work, verdict, sampling),
            backpropagation=backpropagation,
            sync=work.sampling_batches * rates.sync,
            other=other,
            startup=work.loads * _of(self.startup, work.benchmark),
        )

    def nearest(self, model: str) -> str:
        """The measured model whose size is nearest to this one's."""
        if model in self.rates:
            return model
        size = log(self.shapes[model].parameters)
        return min(self.rates, key=lambda one: abs(log(self.shapes[one].parameters) - size))

    def notes(self) -> list[str]:
        others = [self._transfer(model) for model in self.shapes if model not in self.rates]
        return [
            f"rates of {self.runs} runs on {self.hardware or 'a machine'}",
            "seconds of a verdict: " + ", ".join(f"{k} {v:.3g}" for k, v in self.verdict.items()),
            *others,
        ]

    def _transfer(self, model: str) -> str:
        near = self.nearest(model)
        factor = self.shapes[model].parameters / self.shapes[near].parameters
        text = f"{model} is taken to be as fast as {near}, the nearest in size"
        if 1 / FAR < factor < FAR:
            return text
        return f"{text}, though {factor:.2g} times as large: make a short run with it, or use --gpu"

    def seen(self, benchmark: str, model: str) -> Expected | None:
        """What the runs showed of a benchmark, with this model if there were any."""
        of_benchmark = [key for key in self.expected if key[0] == benchmark]
        exact = (benchmark, model)
        key = exact if exact in self.expected else next(iter(of_benchmark), None)
        return self.expected[key] if key else None


def _of(known: Mapping[str, float], benchmark: str) -> float:
    """Of a benchmark, or the mean of those that were measured."""
    return known.get(benchmark, sum(known.values()) / len(known) if known else 0.0)
