"""The peak memory of a training loop, in a fresh process.

The peak is the kernel's VmHWM. `ru_maxrss` would not do: a child inherits its parent's.
"""

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from performance.models import Workload
from performance.rewards import SolveRate
from performance.trainers import SIDES, Setting
from rapid.training.trl import without_vllm

RATE = 0.1


def measure(side: str, workload: Workload, setting: Setting, batches: int) -> dict[str, float]:
    """Return what `train` returns in a process that has held nothing else."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=without_vllm) as fresh:
        return fresh.submit(train, side, workload, setting, batches).result()


def train(side: str, workload: Workload, setting: Setting, batches: int) -> dict[str, float]:
    """Train on `batches` inference batches, and return resident sizes in 1e6 bytes.

    `peak` is the highest so far, `before` the size with the model loaded, before training.
    """
    steps = batches * setting.H
    trainer = SIDES[side](workload, setting, SolveRate(RATE), max_steps=steps)
    before = resident_mb("VmRSS")
    trainer.train()
    return {"peak": resident_mb("VmHWM"), "before": before}


def resident_mb(field: str) -> float:
    """Return VmRSS, or the highest that it has been, VmHWM; 1e6 bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024 / 1e6
