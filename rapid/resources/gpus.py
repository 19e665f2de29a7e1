"""Lists the GPUs that this process may use, without initialising CUDA."""

import os
from dataclasses import dataclass, replace

# The environment variable with the GPUs that CUDA may use in a process.
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# Advice if a job needs more GPUs than `list_visible_gpus` returns.
LISTING_ADVICE = (
    f"list more GPUs in {VISIBLE_DEVICES} (MIG instances, parts of a GPU, are not supported)"
)


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
