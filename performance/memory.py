"""Measures the peak memory of training, in a fresh process.

On a CPU, memory means resident memory, and its peak is Linux's VmHWM; `ru_maxrss` would include the
parent's peak, which a child inherits. On a GPU, memory means what torch has allocated for tensors.
"""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from performance.models import Workload
from performance.parts import Setting
from performance.rewards import SolveRateReward
from performance.trainers import TRAINERS
from rapid.training.memory import read_resident_memory
from rapid.training.trl import prevent_vllm_import


def call_in_fresh_process(function: Callable, *arguments) -> Any:
    """Call a function in a new process that has run nothing else, and return its result."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=prevent_vllm_import) as executor:
        return executor.submit(function, *arguments).result()


def measure_training_memory(
    trainer_name: str, workload: Workload, setting: Setting, batches: int, solve_rate: float
) -> dict[str, float]:
    """Train on `batches` inference batches, and return memory in 1e6 bytes.

    Args:
        trainer_name: a key of `TRAINERS`.
        solve_rate: share of completions that are rewarded.

    Returns:
        `peak`: the peak during training. `before_training`: the memory with the model loaded.
        `before_model`: the memory before the model is built; 0 on a GPU.
    """
    # Build a small model first, so that the modules which transformers imports for a model's class
    # are part of `before_model`.
    if workload.shape:
        replace(workload, shape=replace(workload.shape, layers=1)).load()
    before_model = read_resident_memory("VmRSS") / 1e6
    trainer = TRAINERS[trainer_name](
        workload, setting, SolveRateReward(solve_rate), max_steps=batches * setting.H
    )
    on_gpu = trainer.accelerator.device.type == "cuda"
    before_training = torch.cuda.memory_allocated() if on_gpu else read_resident_memory("VmRSS")
    trainer.train()
    if on_gpu:
        peak, before_model = torch.cuda.max_memory_allocated(), 0.0
    else:
        peak = read_resident_memory("VmHWM")
    return {
        "peak": peak / 1e6,
        "before_training": before_training / 1e6,
        "before_model": before_model,
    }
