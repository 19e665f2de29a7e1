"""Collects a `StepRecord` each optimizer step from what a trainer logs."""

import time

from transformers import TrainerCallback

from rapid.records import StepRecord

PHASES = ("sampling", "grading", "backpropagation", "sync")


class StepRecorder(TrainerCallback):
    """Keeps the optimizer steps of a training run in `steps`; needs `logging_steps=1`.

    `clock` is a `PhaseClock`'s seconds by phase, where there is one. `began` and `ended` bound the
    training loop, on the clock of `time.perf_counter`.
    """

    def __init__(self):
        self.steps: list[StepRecord] = []
        self.began = self.ended = 0.0
        self.clock: dict[str, float] = {}
        self._clocked: dict[str, float] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()

    def on_log(self, args, state, control, logs, **kwargs):
        if "grad_norm" not in logs:  # the closing summary
            return
        self.steps.append(
            StepRecord(
                step=state.global_step,
                seconds=time.perf_counter() - self.began,
                loss=logs["loss"],
                gradient_norm=logs["grad_norm"],
                reward=logs.get("rapid/accuracy"),
                signal=logs.get("rapid/signal"),
                completion_length=logs.get("rapid/length"),
                staleness=logs.get("rapid/staleness"),
                clip_fraction=logs.get("rapid/clip_fraction"),
                weight=logs.get("rapid/weight"),
                kl=logs.get("rapid/kl"),
                run=logs.get("rapid/run"),
                **self._phases(),
            )
        )

    def _phases(self) -> dict[str, float]:
        """Seconds of each phase since the last call."""
        now = {name: self.clock.get(name, 0.0) for name in PHASES if self.clock}
        passed = {name: now[name] - self._clocked.get(name, 0.0) for name in now}
        self._clocked = now
        return passed
