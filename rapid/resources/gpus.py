"""Lists the GPUs that this process may use, without initialising CUDA in it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace

# The environment variable with the GPUs that CUDA may use in a process.
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# Advice if a job needs more GPUs than `list_visible_gpus` returns.
LISTING_ADVICE = (
    f"list more GPUs in {VISIBLE_DEVICES} (MIG instances, parts of a GPU, are not supported)"
)

# A program that prints torch's version of CUDA (null in a build for CPUs), the number of GPUs that
# it can use, and why it can use none. It initialises CUDA, because `device_count` alone also counts
# the GPUs of a driver that is too old for torch.
TORCH_PROBE = """
import json, torch
reason = ""
try:
    torch.cuda.init()
except Exception as error:
    reason = str(error)
print(json.dumps([torch.version.cuda, 0 if reason else torch.cuda.device_count(), reason]))
"""


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Args:
        name: its number or whole UUID, for CUDA_VISIBLE_DEVICES.
        uuid: identifies the GPU in all processes of the machine. A number may not identify it,
            because SLURM can number each job's GPUs from 0.
        memory_mb: total memory in 1e6 bytes.
    """

    name: str
    uuid: str
    memory_mb: int


def list_visible_gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs that CUDA_VISIBLE_DEVICES allows; [] if no driver is installed."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # pynvml or the driver is not installed, so no GPU can be used
        return []
    try:
        gpus = []
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            memory_mb = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 1e6)
            gpus.append(Gpu(str(number), pynvml.nvmlDeviceGetUUID(handle), memory_mb))
    finally:
        pynvml.nvmlShutdown()
    return select_gpus(gpus, os.environ[VISIBLE_DEVICES]) if VISIBLE_DEVICES in os.environ else gpus


def select_gpus(gpus: list[Gpu], names: str) -> list[Gpu]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES names, by number or UUID prefix.

    Like CUDA, it ignores the first name that is unknown, ambiguous or repeated, and all names after
    that one: "0,-1,1" is GPU 0. MIG instances are not selected.

    Returns:
        The GPUs, each with its number as its name if it was selected by number, else with its whole
        UUID: vLLM does not accept prefixes.
    """
    selected: list[Gpu] = []
    for name in filter(None, map(str.strip, names.split(","))):
        matches = [gpu for gpu in gpus if gpu.name == name or gpu.uuid.startswith(name)]
        if len(matches) != 1 or matches[0].uuid in {gpu.uuid for gpu in selected}:
            break
        [gpu] = matches
        selected.append(gpu if gpu.name == name else replace(gpu, name=gpu.uuid))
    return selected


def explain_unusable_gpus(count: int) -> str:
    """Return why torch cannot use `count` of the visible GPUs, and advice; "" if it can use them.

    A child process imports torch and initialises CUDA, which takes seconds. If this process did so,
    the processes that it forks could not use CUDA.
    """
    command = [sys.executable, "-c", TORCH_PROBE]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode:
        cuda, usable, reason = None, 0, (process.stderr.splitlines() or ["it ended"])[-1]
    else:
        cuda, usable, reason = json.loads(process.stdout.splitlines()[-1])
    if usable >= count:
        return ""
    # Without torch's own advice, which includes to install another torch.
    reason = " ".join(reason.partition(" Please ")[0].split()).rstrip(".")
    problem = f"torch can use {usable} of {count} GPU(s)" + (f": {reason}" if reason else "")
    if cuda is None:
        return f"{problem}. Install torch for GPUs: `GPU=1 make setup`"
    return (
        f"{problem}. This torch needs a driver for CUDA {cuda}: if `nvidia-smi` shows an older "
        "version of CUDA, update the NVIDIA driver"
    )
