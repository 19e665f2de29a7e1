"""The peak memory of a training loop, in a fresh process.

The peak of a loop on a CPU is the kernel's VmHWM. `ru_maxrss` would not do: a child inherits its
parent's. On a GPU it is the most that tensors have held.
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
from rapid.training.trl import without_vllm


def call_in_fresh_process(function: Callable, *arguments) -> Any:
    """Return what a function returns in a process that has held nothing else."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=without_vllm) as fresh:
        return fresh.submit(function, *arguments).result()


def train(
    side: str, workload: Workload, setting: Setting, batches: int, rate: float
) -> dict[str, float]:
    """Train on `batches` inference batches, and return sizes in 1e6 bytes.

    `peak` is the most that was held, `before` the resident size with the model loaded, before
    training, and `empty` the one before the model was made.
    """
    if workload.shape:  # what transformers imports for a model is none of the model's memory
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
    """Return VmRSS, or the highest that it has been, VmHWM; 1e6 bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024 / 1e6
