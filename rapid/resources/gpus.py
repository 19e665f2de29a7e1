"""The GPUs that this process may use, found without initialising CUDA."""

import os
from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Args:
        name: its number, or its UUID, as CUDA_VISIBLE_DEVICES has it.
        identity: its UUID, by which all processes of the machine know it. Numbers will not do:
            SLURM may number each job's GPUs from 0.
        memory_mb: in 1e6 bytes.
    """

    name: str
    identity: str
    memory_mb: int


def visible_gpus() -> list[Gpu]:
    """Return NVIDIA's GPUs, those in CUDA_VISIBLE_DEVICES where it is set; [] without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, or no driver: either way there are none to use
        return []
    try:
        gpus = []
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            memory_mb = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 1e6)
            gpus.append(Gpu(str(number), pynvml.nvmlDeviceGetUUID(handle), memory_mb))
    finally:
        pynvml.nvmlShutdown()
    return chosen(gpus, os.environ[VISIBLE]) if VISIBLE in os.environ else gpus


def chosen(gpus: list[Gpu], names: str) -> list[Gpu]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES names, by number or start of the UUID.

    As CUDA does, it ends at the first name that is none: "0,-1,1" is GPU 0.
    """
    found = []
    for name in filter(None, map(str.strip, names.split(","))):
        same = [gpu for gpu in gpus if gpu.name == name or gpu.identity.startswith(name)]
        if len(same) != 1 or same[0].identity in {gpu.identity for gpu in found}:
            break
        found.append(Gpu(name, same[0].identity, same[0].memory_mb))
    return found
