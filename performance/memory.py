"""The peak memory of a training loop, measured in a fresh process.

On a CPU the peak is Linux's VmHWM. `ru_maxrss` cannot be used, because a child process inherits its
parent's value. On a GPU the peak is torch's maximum of memory allocated for tensors.
"""

import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from performance.models import Workload
from performance.parts import Setting
from performance.rewards import SolveRate
from performance.trainers import SIDES
from rapid.training.trl import prevent_vllm_import


def call_in_fresh_process(function: Callable, *arguments) -> Any:
    """Call a function in a new process that has run nothing else, and return its result."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=prevent_vllm_import) as fresh:
        return fresh.submit(function, *arguments).result()


def train(
    side: str, workload: Workload, setting: Setting, batches: int, rate: float
) -> dict[str, float]:
    """Train on `batches` inference batches, and return memory in 1e6 bytes.

    `peak` is the peak during training, `before` the resident size with the model loaded and before
    training, `empty` the resident size before the model was built (on a GPU 0).

    Args:
        side: the trainer, a key of `SIDES`.
        rate: share of completions that are rewarded.
    """
    # Build a small model first, so that modules which transformers imports for a model's class are
    # part of `empty`.
    if workload.shape:
        replace(workload, shape=replace(workload.shape, layers=1)).load()
    empty = resident_mb("VmRSS")
    trainer = SIDES[side](workload, setting, SolveRate(rate), max_steps=batches * setting.H)
    before = resident_mb("VmRSS")
    trainer.train()
    if trainer.accelerator.device.type == "cuda":
        peak, empty = torch.cuda.max_memory_allocated() / 1e6, 0.0
    else:
        peak = resident_mb("VmHWM")
    return {"peak": peak, "before": before, "empty": empty}


def resident_mb(field: str) -> float:
    """Return this process's resident memory (VmRSS) or its peak (VmHWM) in 1e6 bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024 / 1e6
