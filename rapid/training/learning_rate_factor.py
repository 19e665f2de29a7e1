"""Multiplies the learning rate of single optimizer steps, for `Algorithm.scales_steps`.

The schedule of the learning rate over a run is not here: it is chosen by `Schedule` in
rapid/algorithms/training_parameters.py.
"""

from transformers import TrainerCallback
from typing_extensions import override


class LearningRateFactor(TrainerCallback):
    """Callback that multiplies the learning rate of the next optimizer step by `factor`.

    The trainer sets it to `Algorithm.step_scale` before the step. After this step the learning rate
    is restored and the factor is 1 again, so that schedule, logs and checkpoints have the learning
    rate without the factor.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._rates: list = []  # learning rates of the parameter groups, during a step

    @override
    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **_):
        self._rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self.factor

    @override
    def on_optimizer_step(self, args, state, control, optimizer=None, **_):
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
        self.factor = 1.0
