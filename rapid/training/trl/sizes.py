"""Converts between GRPOConfig's batch sizes and RapidConfig's n_step and H.

n_step is the number of completions per optimizer step, over all processes. H is the number of
optimizer steps per inference batch, which is the completions that are sampled at once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral

from rapid.training.memory import AUTO

DEFAULT_N_STEP, DEFAULT_H = 32, 4  # used if neither they nor TRL's batch sizes are set
# TRL's sizes of an inference batch, and what one optimizer step takes of them.
DIVISORS = {
    "steps_per_generation": "gradient_accumulation_steps",
    "generation_batch_size": "n_step",
}
DEFAULT_PER_DEVICE = 8  # of per_device_train_batch_size, in completions; also TRL's default


def resolve_sizes(config, processes: int) -> None:
    """Set n_step, H and micro_batch_size where they are None, and convert counts to int.

    If one of TRL's batch sizes is set, n_step and H become those of GRPOTrainer. In each process,
    GRPOTrainer takes an optimizer step on per_device_train_batch_size * gradient_accumulation_steps
    completions, samples for steps_per_generation micro-batches at a time, and uses each completion
    num_iterations times. micro_batch_size="auto" becomes token_budget="auto".

    Raises:
        ValueError: a count is not a whole number.
    """
    names = "H", "n_step", "reuse", "num_generations", "sampling_batch_size", "grading_workers"
    named_sizes = {name: getattr(config, name) for name in names}
    if errors := [
        f"{name}={size!r}: set it to a whole number"
        for name, size in named_sizes.items()
        if size is not None and not isinstance(size, Integral)
    ]:
        raise ValueError("\n".join(errors))
    vars(config).update({name: int(size) for name, size in named_sizes.items() if size is not None})
    per_device = config.per_device_train_batch_size or DEFAULT_PER_DEVICE
    uses_trl_sizes = bool(
        config.per_device_train_batch_size
        or config.generation_batch_size
        or _count_micro_batches(config)
        or config.gradient_accumulation_steps != 1
        or config.num_iterations != 1
    )
    origin = "from TRL's sizes" if uses_trl_sizes else "default"  # printed when a run begins
    config.origins |= {name: origin for name in ("n_step", "H") if getattr(config, name) is None}
    if config.n_step is None:
        accumulated = per_device * config.gradient_accumulation_steps * processes
        config.n_step = accumulated if uses_trl_sizes else DEFAULT_N_STEP
    if config.H is None:
        config.H = _count_steps(config) if uses_trl_sizes else DEFAULT_H
    for name in ("micro_batch_size", "token_budget"):  # a command line gives strings
        if str(value := getattr(config, name)).isdecimal():
            setattr(config, name, int(value))
    if config.micro_batch_size == AUTO:
        config.micro_batch_size, config.token_budget = None, AUTO
    if config.micro_batch_size is None:
        is_set = config.per_device_train_batch_size
        config.origins["micro_batch_size"] = "per_device_train_batch_size" if is_set else "default"
        config.micro_batch_size = per_device


def _count_micro_batches(config) -> int | None:
    """Return how many micro-batches TRL runs per inference batch; None if it is left to TRL."""
    return config.steps_per_generation and config.steps_per_generation * config.num_iterations


def _count_steps(config) -> int:
    """Return the optimizer steps per inference batch: at least 1."""
    if micro_batches := _count_micro_batches(config):
        return max(micro_batches // config.gradient_accumulation_steps, 1)
    if config.generation_batch_size:
        sampled = config.generation_batch_size * config.num_iterations
        return max(sampled // max(config.n_step, 1), 1)
    return config.num_iterations


def find_size_contradictions(config, processes: int) -> Iterator[str]:
    """Yield a message for each of TRL's batch sizes that contradicts n_step and H."""
    accumulation, n_step, H = config.gradient_accumulation_steps, config.n_step, config.H
    iterations, sampled = config.num_iterations, config.generation_batch_size
    per_process = (config.per_device_train_batch_size or DEFAULT_PER_DEVICE) * accumulation
    is_set = config.per_device_train_batch_size or accumulation != 1
    micro_batches = _count_micro_batches(config)
    contradictions = {  # by the names of TRL's sizes
        ("per_device_train_batch_size", "gradient_accumulation_steps"): is_set
        and per_process != -(-n_step // processes),  # rounded up
        ("steps_per_generation", "num_iterations"): micro_batches
        and not _sizes_agree(micro_batches, H * accumulation, H),
        ("generation_batch_size", "num_iterations"): sampled
        and not _sizes_agree(sampled * iterations, H * n_step, H),
        ("num_iterations",): not (micro_batches or sampled) and iterations not in (1, H),
    }
    for names, is_contradiction in contradictions.items():
        if is_contradiction:
            values = {name: getattr(config, name) for name in names}
            if names[0] == "per_device_train_batch_size":
                values[names[0]] = values[names[0]] or f"{DEFAULT_PER_DEVICE} (the default)"
            sizes = ", ".join(f"{name}={value}" for name, value in values.items() if value)
            yield f"{sizes}: " + (
                _describe_broken_step(config, names)
                or f"GRPOTrainer's sizes contradict n_step={n_step}, H={H} with {processes} "
                f"process(es). {_advise_on_contradiction(config, names[0])}. micro_batch_size is "
                "the number of completions in a forward and backward pass, and reuse how often "
                "each completion is used"
            )


def _describe_broken_step(config, names: Sequence[str]) -> str:
    """Return a message if the product of these sizes is no multiple of a step's; else ""."""
    divisor = DIVISORS.get(names[0])
    if "H" not in config.origins or not divisor:  # H does not follow from these sizes
        return ""
    factors = {name: getattr(config, name) for name in names if getattr(config, name) != 1}
    step = getattr(config, divisor)
    if not step or math.prod(factors.values()) % step == 0:
        return ""
    return (
        "an inference batch would not have a whole number of optimizer steps. Set "
        f"{' * '.join(factors)} to a multiple of {divisor}={step}"
    )


def _advise_on_contradiction(config, name: str) -> str:
    """Return what to change if one of TRL's sizes, `name`, contradicts n_step or H."""
    if name == "num_iterations" or {"n_step", "H"} <= config.origins.keys():
        return f"Remove {name}"
    if "n_step" in config.origins:  # only H was set, which may be set together with TRL's sizes
        return f"Remove {name}, or leave H unset"
    return "Leave either GRPOTrainer's sizes or n_step and H unset"


def _sizes_agree(size: int, expected: int, steps: int) -> bool:
    """Return whether one of TRL's sizes agrees with the size expected from n_step and H.

    They are equal, or H is 1 and TRL would sample several times for the single step.
    """
    return size == expected or (steps == 1 and expected % size == 0)


def set_trl_sizes(config, processes: int, check: Callable[[], None]) -> None:
    """Run GRPOConfig's check, then set its batch sizes to those that follow from n_step and H.

    GRPOConfig accepts only one of generation_batch_size and steps_per_generation, and computes the
    other. It also requires that the completions of a step divide evenly among the processes. Here
    only those of an inference batch (H * n_step) have to, so the check is run as if an inference
    batch were one step.
    """
    sizes = {
        "per_device_train_batch_size": -(-config.n_step // processes),
        "gradient_accumulation_steps": 1,
        "steps_per_generation": config.H,
        "generation_batch_size": config.H * config.n_step,
        "num_iterations": 1,
    }
    vars(config).update(sizes, steps_per_generation=None)
    config.per_device_train_batch_size = sizes["generation_batch_size"] // processes
    check()
    vars(config).update(sizes)
