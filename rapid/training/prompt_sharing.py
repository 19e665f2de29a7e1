"""Decides whether training computes the prompt of a group once for all of its completions.

Sharing saves computation, but takes two forward passes in place of one (`rapid.training.forward`).
On a GPU a forward pass of a small model takes about as long for few tokens as for many, because
most of the time is spent on starting kernels.
"""

import math
from collections.abc import Callable

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from accelerate.utils.memory import clear_device_cache

from rapid.training.clock import read_synchronized_seconds
from rapid.training.config import RapidConfig
from rapid.training.memory import is_out_of_memory, reset_peak

MEASURED_DEVICES = {"cuda"}  # devices on which both ways are timed; on others prompts are shared
REPEATS = 3  # passes of each kind, of which the fastest counts


class PromptSharing:
    """Decides whether training shares prompts: by `share_prefill`, or by timing if that is None.

    Attributes:
        is_faster: whether passes were faster with shared prompts; None if they were not timed.
    """

    is_faster: bool | None = None

    def __init__(self, args: RapidConfig, accelerator: Accelerator):
        self._share_prefill: bool | None = args.share_prefill
        # Several processes would all have to make the same passes, even if one of them runs out of
        # memory. With full_determinism the choice must not depend on timing.
        self._is_measured = (
            args.share_prefill is None
            and accelerator.device.type in MEASURED_DEVICES
            and accelerator.distributed_type == DistributedType.NO
            and not args.full_determinism
        )
        self._device = accelerator.device
        self._prints_choice = not args.disable_tqdm

    @property
    def is_wanted(self) -> bool:
        """True if prompts are to be shared where this is possible."""
        if self._is_measured:
            return self.is_faster is not False
        return self._share_prefill is not False

    @property
    def needs_timing(self) -> bool:
        """True if passes have to be timed, because it is not known yet if sharing is faster."""
        return self._is_measured and self.is_faster is None

    def measure(self, run_pass: Callable[[], None]) -> None:
        """Time passes with and without sharing, and keep what is faster.

        The choice is printed, but not with `disable_tqdm=True`.

        Args:
            run_pass: makes a forward and a backward pass, with shared prompts if `is_wanted`. If
                memory runs out, this counts as infinitely slow.
        """
        seconds: dict[bool, list[float]] = {True: [], False: []}
        random_devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(random_devices):  # dropout, if it is enabled
            for _ in range(1 + REPEATS):
                for self.is_faster, times in seconds.items():  # sets `is_wanted` for `run_pass`
                    times.append(_time_pass(run_pass))
        # The first passes include what libraries do once.
        shared, separate = (min(times[1:]) for times in seconds.values())
        self.is_faster = shared <= separate
        clear_device_cache(garbage_collection=True)
        reset_peak(self._device)  # so that the reported peak does not include these passes
        if not self._prints_choice:
            return
        choice = "shared" if self.is_faster else "not shared"
        print(
            f"share_prefill: in training, prompts are {choice} (measured on a micro-batch: "
            f"{_describe_time(shared)} with sharing, {_describe_time(separate)} without)"
        )


def _describe_time(seconds: float) -> str:
    return "out of memory" if seconds == math.inf else f"{1e3 * seconds:.0f} ms"


def _time_pass(run_pass: Callable[[], None]) -> float:
    """Return the seconds of a pass; infinity if memory runs out."""
    began = read_synchronized_seconds()
    try:
        run_pass()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return read_synchronized_seconds() - began
    # after `except`, whose error holds the tensors of the pass
    clear_device_cache(garbage_collection=True)
    return math.inf
