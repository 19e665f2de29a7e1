"""Measures whether training is faster if the completions of a group share a pass of their prompt.

Sharing saves computation, but takes two forward passes in place of one (`rapid.training.forward`).
On a GPU a forward pass of a small model takes about as long for few tokens as for many, because
most of the time is spent on starting kernels.
"""

import logging
import math
from collections.abc import Callable

import torch
from accelerate import Accelerator

from rapid.training.clock import read_synchronized_seconds
from rapid.training.memory import is_out_of_memory, release_memory

logger = logging.getLogger(__name__)
MEASURED_DEVICES = {"cuda"}  # types of devices on which both ways are timed; on others, share
REPEATS = 3  # passes of each kind, of which the fastest counts


def is_sharing_faster(run_pass: Callable[[bool], None], accelerator: Accelerator) -> bool:
    """Time passes with and without sharing, and return the same answer in all processes.

    Args:
        run_pass: makes a forward and a backward pass; its argument says whether to share prompts.
            A pass for which memory runs out counts as infinitely slow.
    """
    for shares in (True, False):  # the first passes include what libraries do once: ignore them
        _time_pass(run_pass, shares)
    rounds = [[_time_pass(run_pass, shares) for shares in (True, False)] for _ in range(REPEATS)]
    fastest = torch.tensor(rounds, device=accelerator.device).amin(0)
    shared, separate = accelerator.reduce(fastest, "sum").tolist()
    message = "a micro-batch takes %.0f ms with shared prompts, and %.0f ms without"
    logger.info(message, 1e3 * shared, 1e3 * separate)
    return shared <= separate


def _time_pass(run_pass: Callable[[bool], None], shares: bool) -> float:
    """Return the seconds of a pass; infinity if memory runs out."""
    began = read_synchronized_seconds()
    try:
        run_pass(shares)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        release_memory()
        return math.inf
    return read_synchronized_seconds() - began
