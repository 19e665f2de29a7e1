"""Checkpoints from which a run resumes exactly.

Trainer's checkpoints hold weights, optimizer, schedule, logs and the states of random generators.
The checkpoints here also hold what else the next inference batch depends on: position in the data,
counts, settings and the state of the training loop. See `rapid.training` for terms (inference
batch, H, n_step).
"""

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from datasets import IterableDataset
from trl import GRPOConfig, GRPOTrainer
from typing_extensions import override

from rapid.training.trl.saving_trainer import SavingTrainer

logger = logging.getLogger(__name__)
# Settings that must be the same when a run is resumed; the first three are RapidConfig's.
FIXED_SETTINGS = ("H", "n_step", "reuse", "num_generations", "world_size", "bf16")


class ResumableTrainer(SavingTrainer, GRPOTrainer):
    """GRPOTrainer whose checkpoints hold everything that the next inference batch depends on.

    Attributes:
        completions_sampled: number of completions that this process has sampled for training.
        verdicts: number of completions by the reason of their verdict (`rapid.grading.verdicts`).
            Empty, unless the caller sets it to the counter of this process's grader.
    """

    args: GRPOConfig
    _logs: dict[str, Any]

    def __init__(self, *args, **kwargs):
        self._sampler: Any = None  # sampler of training prompts
        self._loaded_state: dict[str, Any] = {}  # state from the checkpoint, until it is restored
        super().__init__(*args, **kwargs)
        self.completions_sampled = 0
        self.verdicts: Counter[str] = Counter()

    def get_loop_state(self) -> dict[str, Any]:
        """Return the state that the training loop keeps between inference batches.

        Values are None, numbers, texts and tensors, in lists, tuples and dicts.
        """
        raise NotImplementedError

    def load_loop_state(self, state: dict[str, Any]) -> None:
        """Restore the return value of `get_loop_state`; {} resets the state for a new run."""
        raise NotImplementedError

    @override
    def _get_train_sampler(self, dataset=None):
        """Return TRL's sampler of training prompts, and keep a reference to it.

        The sampler begins with the order of epoch 0, also in a resumed run, where
        `_init_training_state` advances it.
        """
        self._sampler = super()._get_train_sampler(dataset)
        return self._sampler

    @override
    def _init_training_state(
        self, max_steps, num_update_steps_per_epoch, num_train_epochs, resume_from_checkpoint, trial
    ):
        """Return the epoch and the step in it with which a run begins, and advance the sampler.

        Trainer computes both from the number of steps. That is wrong if an epoch ended early, or if
        a stream of prompts was read several times. Here they come from the checkpoint.

        Trainer would also take a further step if the checkpoint has reached `max_steps`, and set
        its state only before that step. Here the epochs are then over, and the state is set at
        once, so that `train` ends with the checkpoint's state.

        Raises:
            ValueError: the run cannot be resumed exactly from this checkpoint.
        """
        epoch, step = super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, resume_from_checkpoint, trial
        )
        self.load_loop_state({})
        if resume_from_checkpoint is not None:
            self._loaded_state = self._load_state(resume_from_checkpoint)
            if not self.args.ignore_data_skip:
                epoch, step = self._loaded_state["position"]
        if getattr(self._sampler, "shuffle", False):
            for _ in range(epoch):  # draw and drop the orders of the epochs that are over
                torch.randperm(self._sampler.num_samples, generator=self._sampler.generator)
        if resume_from_checkpoint is not None and self.state.global_step >= max_steps:
            logger.warning(
                "%s: the run has taken %d of %d steps, so that nothing is left to train. To train "
                "longer, raise max_steps or num_train_epochs",
                resume_from_checkpoint,
                self.state.global_step,
                max_steps,
            )
            self._load_rng_state(resume_from_checkpoint)
            epoch = max(epoch, num_train_epochs)
        return epoch, step

    def _get_position(self) -> tuple[int, int]:
        """Return the epoch of the next step, and the number of steps taken in that epoch."""
        is_stream = isinstance(self.train_dataset, IterableDataset)
        loader: Any = self.callback_handler.train_dataloader
        # Trainer counts `max_steps` steps on a stream as one epoch.
        epoch_steps = self.state.max_steps if is_stream else len(loader)
        epoch, step = divmod(round(self.state.epoch * epoch_steps), epoch_steps)
        # If a callback ends the epoch early, the next step is the first one of the next epoch.
        return (epoch + 1, 0) if step and self.control.should_epoch_stop else (epoch, step)

    @override
    def _load_best_model(self):
        """Load the best checkpoint, and make vLLM load the weights before it samples again.

        TRL compares the number of the step only, which is that of the last weights.
        """
        super()._load_best_model()
        self._last_loaded_step = -1

    @override
    def _save_rng_state(self, output_dir):
        """Save the states of random generators, and what else the next step depends on.

        Trainer calls this for each checkpoint, in every process.
        """
        super()._save_rng_state(output_dir)
        metrics = {name: [*values] for name, values in self._metrics["train"].items()}
        # TRL's table of completions: columns, or dicts of columns, such as those of rewards.
        logs = [
            (name, key, [*column])
            for name, part in self._logs.items()
            for key, column in (part if isinstance(part, dict) else {"": part}).items()
        ]
        state = {
            "sizes": {name: getattr(self.args, name) for name in FIXED_SETTINGS},
            "position": self._get_position(),
            "loss": (self._tr_loss, self._total_loss_scalar, self._globalstep_last_logged),
            "logs": json.dumps([metrics, logs], default=str),
            "completions_sampled": self.completions_sampled,
            "verdicts": dict(self.verdicts),
            "loop": self.get_loop_state(),
        }
        torch.save(state, self._get_state_file(output_dir))

    @override
    def _load_rng_state(self, checkpoint):
        """Restore what the next step depends on. Trainer calls this once, before that step."""
        super()._load_rng_state(checkpoint)
        state, self._loaded_state = self._loaded_state, {}
        self._tr_loss, total_loss, self._globalstep_last_logged = state["loss"]
        # Before 5.19, transformers' train_loss was the mean over the steps of all calls. Now it is
        # that of this call, so the losses that were not logged yet are subtracted beforehand.
        is_mean_of_call = hasattr(self, "_initial_global_step")
        self._total_loss_scalar = -self._tr_loss.item() if is_mean_of_call else total_loss
        metrics, logs = json.loads(state["logs"])
        self._metrics["train"].update(metrics)
        for name, key, column in logs:
            (self._logs[name][key] if key else self._logs[name]).extend(column)
        self.completions_sampled = state["completions_sampled"]
        self.verdicts.clear()
        self.verdicts.update(state["verdicts"])
        self.load_loop_state(state["loop"])

    def _load_state(self, checkpoint: str) -> dict[str, Any]:
        """Return the state that `_save_rng_state` saved in a checkpoint.

        Raises:
            ValueError: the file is missing, or the settings of this run do not fit.
        """
        file, problem = self._get_state_file(checkpoint), ""
        state: dict[str, Any] = {}
        changed: list[str] = []
        if file.is_file():
            state = torch.load(file, self.accelerator.device.type, weights_only=True)
            # Earlier versions did not save these two.
            saved = {"reuse": 1, "bf16": self.args.bf16} | state["sizes"]
            changed = [name for name in FIXED_SETTINGS if saved[name] != getattr(self.args, name)]
            problem = ", ".join(
                f"{name} was {saved[name]} and is now {getattr(self.args, name)}"
                for name in changed
            )
        else:
            problem = (
                f"it has no {file.name}: it was saved with save_only_model, by fewer "
                "processes, by another trainer or by an earlier version"
            )
        if self.args.sync_ref_model:
            changed, problem = [], "it lacks the reference model, which sync_ref_model changes"
        if problem:
            advice = "Restore these settings, or start" if changed else "Start"
            raise ValueError(
                f"{checkpoint} cannot be resumed: {problem}. {advice} a new run with the "
                "checkpoint as its model"
            )
        return state

    def _get_state_file(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"training_loop_{self.accelerator.process_index}.pth"
