"""Prints what a run will do, how long its first inference batch took, and the time left.

`describe_run` describes what will be trained. `Overview` prints this when training begins, and a
line with measured times after the first inference batch. An inference batch is the completions that
are sampled at once, for H * reuse optimizer steps.
"""

import logging
import math
import time
from statistics import fmean
from typing import Any, NamedTuple

import torch
from transformers import ProgressCallback, TrainerCallback
from transformers.trainer_pt_utils import get_model_param_count
from transformers.trainer_utils import has_length
from transformers.utils.logging import WARNING, get_verbosity

from rapid.text import align_columns, format_duration, format_size
from rapid.training.caches import depends_on_padding
from rapid.training.memory import AUTO, read_peak

logger = logging.getLogger(__name__)

# Settings of GRPOTrainer's own loss that are shown with objective "trl".
SHOWN_TRL_SETTINGS = ("loss_type", "beta", "epsilon", "epsilon_high", "scale_rewards")
# Phases of the trainer's clock, with their names in the line about an inference batch.
PHASES = {
    "sampling": "sampling",
    "grading": "grading",
    "sync": "sync",
    "backpropagation": "training",
}


class BatchTime(NamedTuple):
    """The seconds of an inference batch in total, and of its forward and backward passes."""

    total: float
    training: float


def estimate_seconds_left(batches: list[BatchTime], steps: int, steps_per_batch: int) -> float:
    """Return the seconds that the remaining steps of a run will take.

    The first inference batch includes what is done once in a run, and is used only if there is no
    other. The last batch is sampled and graded as a whole, even if fewer steps are taken on it.
    """
    typical = batches[1:] or batches
    training = fmean(batch.training for batch in typical)
    other = fmean(batch.total for batch in typical) - training
    return math.ceil(steps / steps_per_batch) * other + steps / steps_per_batch * training


class SteadyProgress(ProgressCallback):
    """transformers' progress bar with another estimate of the time left.

    The estimate is from the mean time of all steps since training began or was resumed.
    transformers' own bar gives more weight to the last steps. Its estimate jumps, because the first
    step on an inference batch includes sampling. In a resumed run it also counts the steps before
    the resume as if they had just been done.
    """

    def on_train_begin(self, args, state, control, **_):
        super().on_train_begin(args, state, control)
        if self.training_bar is not None:
            self.training_bar.initial, self.training_bar.smoothing = state.global_step, 0


class Overview(TrainerCallback):
    """Prints what a run will do, and a line with measured times after its first inference batch.

    The first process prints both to standard output, above the progress bar, but not with
    `disable_tqdm=True`, nor if transformers' verbosity is above "warning". If this module's logger
    has the level INFO, both are logged instead, with a line after each inference batch.
    """

    def __init__(self, trainer: Any):
        self._trainer, self._progress = trainer, SteadyProgress()
        self._passed_optimizers = trainer.optimizer, trainer.lr_scheduler  # None if not passed
        self._batches: list[BatchTime] = []
        # The state when the present inference batch began: time of time.perf_counter, number of
        # forward and backward passes so far, and seconds by phase so far.
        self._began, self._passes = 0.0, 0
        self._phase_seconds: dict[str, float] = {}
        self._is_shown = False

    @classmethod
    def attach(cls, trainer: Any) -> None:
        """Let a trainer print an overview, before its progress bar appears."""
        overview = cls(trainer)
        trainer.callback_handler.callbacks[:] = [overview] + [
            overview._progress if type(callback) is ProgressCallback else callback
            for callback in trainer.callback_handler.callbacks
        ]

    def on_train_begin(self, args, state, control, train_dataloader=None, **_):
        self._batches = []
        self._is_shown = not args.disable_tqdm and get_verbosity() <= WARNING
        if state.is_world_process_zero:
            first, last = state.global_step + 1, state.max_steps
            steps_per_epoch = len(train_dataloader) if has_length(train_dataloader) else None
            steps = last - first + 1
            rows = describe_run(self._trainer, steps, steps_per_epoch, self._passed_optimizers)
            lines = [f"RapidTrainer: optimizer steps {first:,} to {last:,}", *align_columns(rows)]
            self._print("\n  ".join(lines))
        self._begin_batch()

    def on_step_end(self, args, state, control, **_):
        if self._trainer.has_pending_steps() and state.global_step < state.max_steps:
            return
        if state.is_world_process_zero:
            line = self._describe_batch(state.max_steps - state.global_step)
            if len(self._batches) == 1 or logger.isEnabledFor(logging.INFO):
                self._print(f"step {state.global_step:,} of {state.max_steps:,}: {line}")
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._began, self._phase_seconds = time.perf_counter(), dict(self._trainer.clock.seconds)
        self._passes = self._trainer.passes

    def _describe_batch(self, steps_left: int) -> str:
        """Describe the time of the inference batch that has just ended, and the time left."""
        total, before = time.perf_counter() - self._began, self._phase_seconds
        seconds = {
            name: self._trainer.clock.seconds.get(phase, 0.0) - before.get(phase, 0.0)
            for phase, name in PHASES.items()
        }
        self._batches.append(BatchTime(total, seconds["training"]))
        seconds["other"] = total - sum(seconds.values())
        if not self._trainer.use_vllm:
            del seconds["sync"]
        parts = [f"{name} {format_duration(value)}" for name, value in seconds.items()]
        text = (
            f"an inference batch took {format_duration(total)} ({', '.join(parts)}; "
            f"{count_noun(self._trainer.passes - self._passes, 'pass')})"
            f"{describe_peak(self._trainer.accelerator.device)}"
        )
        if steps_left:
            steps_per_batch = self._trainer.args.steps_per_batch
            seconds_left = estimate_seconds_left(self._batches, steps_left, steps_per_batch)
            text += f"; time left: about {format_duration(seconds_left)}"
        return text

    def _print(self, text: str) -> None:
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s", text)
        elif self._is_shown:
            bar = self._progress.training_bar
            (bar.write if bar is not None else print)(text)


# What will be trained -----------------------------------------------------------------------------


def describe_run(
    trainer: Any, steps: int, steps_per_epoch: int | None, optimizers: tuple
) -> list[tuple[str, str]]:
    """Return what a trainer is about to do, as pairs of a label and a text.

    `steps_per_epoch` is None if the length of the dataset is not known, and so are the optimizer
    and the scheduler in `optimizers` if they were not passed to the trainer.
    """
    args = trainer.args
    rows = [
        ("model", describe_model(trainer)),
        ("objective", describe_objective(args)),
        ("optimizer", describe_optimizer(args, *optimizers)),
        ("batch", describe_inference_batch(trainer)),
        ("steps", describe_steps(args)),
        ("passes", describe_passes(trainer)),
        ("run", describe_run_length(trainer, steps, steps_per_epoch)),
        ("rewards", describe_rewards(trainer)),
        ("device", describe_devices(trainer.accelerator)),
        ("memory", describe_memory(trainer)),
    ]
    return [(label, text) for label, text in rows if text]


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun: 1 batch, 2 batches."""
    plural = f"{noun}es" if noun.endswith(("ch", "ss")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def describe_setting(args: Any, name: str) -> str:
    """Return a setting with its value, and with the origin of a value that was not passed."""
    origin = args.origins.get(name)
    return f"{name}={getattr(args, name)}" + (f" ({origin})" if origin else "")


def describe_model(trainer: Any) -> str:
    model = trainer.accelerator.unwrap_model(trainer.model)
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    count = get_model_param_count(model)
    trained = get_model_param_count(model, trainable_only=True)
    text = f"{name}, {count:,} parameters in {str(model.dtype).removeprefix('torch.')}"
    if (precision := trainer.accelerator.mixed_precision) != "no":
        text += f" (computes in {precision})"
    if origin := trainer.args.origins.get("precision"):
        text += f" ({origin})"
    if trained == count:
        return f"{text}, all trained"
    adapters = getattr(model, "peft_config", {}).values()
    kinds = ", ".join(getattr(adapter.peft_type, "value", "adapter") for adapter in adapters)
    return f"{text}, {trained:,} trained ({trained / count:.2%}{kinds and f', {kinds}'})"


def describe_objective(args: Any) -> str:
    if args.uses_trl_loss:
        settings = {name: getattr(args, name) for name in SHOWN_TRL_SETTINGS}
    else:
        settings = args.settings.model_dump() if args.settings else {}
    origin = args.origins.get("objective")
    objective = f"{args.objective} ({origin})" if origin else args.objective
    values = [f"{name}={value}" for name, value in settings.items() if value is not None]
    return ", ".join([objective, *values])


def describe_optimizer(args: Any, optimizer: Any = None, scheduler: Any = None) -> str:
    """Describe the optimizer and the schedule that were passed to the trainer, or else args'."""
    name, schedule = (getattr(v, "value", v) for v in (args.optim, args.lr_scheduler_type))
    rates = [args.learning_rate]
    if optimizer is not None:
        name = type(optimizer).__name__
        groups = optimizer.param_groups
        rates = sorted({group.get("initial_lr", group["lr"]) for group in groups})
    if scheduler is not None:
        schedule = type(scheduler).__name__
    return f"{name}, learning rate {', '.join(f'{rate:g}' for rate in rates)} ({schedule})"


def describe_inference_batch(trainer: Any) -> str:
    args, size = trainer.args, trainer.args.H * trainer.args.n_step
    sampler = "transformers"
    if trainer.rollout_func is not None:
        sampler = "the rollout_func"
    elif trainer.use_vllm:
        sampler = f"vLLM ({args.vllm_mode})"
    batches = "at once"
    if args.sampling_batch_size:
        scope = " in each process" if trainer.accelerator.num_processes > 1 else ""
        batches = f"{args.sampling_batch_size:,} at a time{scope}"
    text = (
        f"{size:,} completions of {size // trainer.num_generations:,} prompts "
        f"(num_generations={trainer.num_generations}), sampled {batches} by {sampler}"
    )
    if (rounds := args.dynamic_sampling_rounds) > 1:
        text += f"; groups without signal are replaced, in up to {rounds} rounds of sampling"
    return text


def describe_steps(args: Any) -> str:
    H, n_step = (describe_setting(args, name) for name in ("H", "n_step"))
    repetitions = f" * reuse={args.reuse}" if args.reuse > 1 else ""
    text = f"{H}{repetitions} for each batch, on {n_step} completions"
    if limit := args.max_completion_length:
        text += (
            f" of up to {limit:,} tokens, so at most {args.n_step * limit:,} tokens in a step "
            "besides the prompts"
        )
    return text


def describe_passes(trainer: Any) -> str:
    args, has_processes = trainer.args, trainer.accelerator.num_processes > 1
    if args.token_budget == AUTO:
        return "as many completions in each, forward and backward, as fit in memory"
    if args.token_budget is not None and args.pack:
        return f"up to {args.token_budget:,} tokens in each, forward and backward"
    # With several processes, or if a model needs prompts of one length, there can be more passes.
    is_limit = not has_processes and not depends_on_padding(trainer.model)
    count = f"{'at most' if is_limit else 'about'} {trainer.count_passes():,}"
    scope = " in each process" if has_processes else ""
    size = describe_setting(args, "micro_batch_size")
    return f"{count} in a step{scope}, forward and backward, with {size}"


def describe_run_length(trainer: Any, steps: int, steps_per_epoch: int | None) -> str:
    size = trainer.args.H * trainer.args.n_step
    batches = math.ceil(steps / trainer.args.steps_per_batch)
    prompts = batches * size // trainer.num_generations
    at_least = "at least " if trainer.args.dynamic_sampling_rounds > 1 else ""
    epochs = "streamed" if steps_per_epoch is None else f"epochs: {steps / steps_per_epoch:.3g}"
    return (
        f"{count_noun(steps, 'step')}, {count_noun(batches, 'batch')}, "
        f"{at_least}{batches * size:,} completions of {count_noun(prompts, 'prompt')} ({epochs})"
    )


def describe_rewards(trainer: Any) -> str:
    weights = trainer.reward_weights.tolist()
    terms = zip(trainer.reward_func_names, weights, strict=True)
    text = ", ".join(f"{weight:g} * {name}" if weight != 1 else name for name, weight in terms)
    if workers := trainer.args.grading_workers:
        text += f"; {count_noun(workers, 'thread')} for grading"
    if (limit := trainer.args.reward_timeout) is not None:
        text += f"; reward_timeout={limit:g} seconds"
    return text


def describe_devices(accelerator: Any) -> str:
    count, device = accelerator.num_processes, accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    text = f"{name}, {count_noun(count, 'process')}"
    if device.type == "cpu":
        scope = " each" if count > 1 else ""
        text += f", {count_noun(torch.get_num_threads(), 'thread')}{scope}"
    return text


def describe_memory(trainer: Any) -> str:
    """Describe the memory that is held during the whole run. Activations are not part of it.

    The description is "" with DeepSpeed, which divides this memory among the processes.
    """
    if trainer._uses_deepspeed:
        return ""
    size, vllm_share = format_size(count_held_bytes(trainer)), ""
    device = trainer.accelerator.device
    if device.type == "cuda":
        total = format_size(get_total_memory(device))
        size += f" of {total}"
        if trainer.use_vllm and trainer.args.vllm_mode == "colocate":
            share = trainer.args.vllm_gpu_memory_utilization
            vllm_share = f"; vLLM may take {share:.0%} of the {total}"
    contents = "weights, gradients and Adam's moments"
    if not uses_adam(trainer):
        contents = "weights and gradients"
    return f"{size} for {contents}; activations and buffers need further memory{vllm_share}"


def uses_adam(trainer: Any) -> bool:
    """Return whether the optimizer, which accelerate may wrap, is torch's Adam or AdamW."""
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    return isinstance(optimizer, torch.optim.Adam)


def count_held_bytes(trainer: Any) -> int:
    """Return the bytes of weights, gradients, Adam's moments and the reference policy."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    copies = 4 if uses_adam(trainer) else 2  # of each parameter that is trained
    size = sum(p.nbytes * (copies if p.requires_grad else 1) for p in model.parameters())
    reference = trainer.ref_model
    return size + (sum(p.nbytes for p in reference.parameters()) if reference is not None else 0)


def describe_peak(device: torch.device) -> str:
    """Describe the peak of this process's memory; "" if the system does not report it."""
    if (peak := read_peak(device)) is None:
        return ""
    total = f" of {format_size(get_total_memory(device))}" if device.type == "cuda" else ""
    return f"; peak memory {format_size(peak)}{total}"


def get_total_memory(device: torch.device) -> int:
    """Return the bytes of a GPU's memory."""
    return torch.cuda.get_device_properties(device).total_memory
