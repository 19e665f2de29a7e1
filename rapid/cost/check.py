"""Predicted and measured runtimes: rates are fitted to a few runs, the others are predicted."""

from dataclasses import dataclass

from rapid.algorithms import IMITATING, PLAIN, RAPID
from rapid.algorithms.names import imitates
from rapid.cost.expected import Expected
from rapid.cost.fit import fit
from rapid.cost.measured import Measured
from rapid.cost.runs import NoRuns, Observed
from rapid.cost.sizes import Shape
from rapid.cost.work import rl_work, sft_work

FITTED = (PLAIN.name, RAPID.at(4), IMITATING.name)  # of the first seed


@dataclass(frozen=True)
class Prediction:
    """A run that nothing was fitted to: seconds of its training loop."""

    run: Observed
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def check(observed: list[Observed], shapes: dict[str, Shape], usual: Expected) -> list[Prediction]:
    """Fit on `FITTED` of the first seed, predict the others.

    Lengths and shares are those of the fitted runs too: a prediction knows nothing of its run but what
    it was told to do, and its number of optimizer steps.

    Raises:
        NoRuns: none to fit on, or none left to predict.
    """
    first = min(one.spec.run.seed for one in observed)
    own = [
        one for one in observed if one.spec.run.seed == first and one.spec.run.algorithm in FITTED
    ]
    others = [one for one in observed if one not in own]
    if not own or not others:
        raise NoRuns(
            f"--check fits on {', '.join(FITTED)} of seed {first} and predicts the others: there are "
            f"{len(own)} of these and {len(others)} others; run more (snakemake all_train)"
        )
    machine = fit(own, shapes, usual)
    return [_predict(one, machine, usual) for one in others]


def _predict(one: Observed, machine: Measured, usual: Expected) -> Prediction:
    spec, steps = one.spec, one.summary.optimizer_steps
    expected = machine.seen(spec.run.benchmark, spec.run.model) or usual
    work = (sft_work if imitates(spec.run.algorithm) else rl_work)(spec, steps, expected)
    return Prediction(one, machine.seconds(work).runtime, one.summary.runtime.total)
