"""What a job asks of a machine, from its spec: cores, GPUs, memory, time.

Cores and GPUs are what it leases (`rapid.machine.lease`). Memory and time are bounds, for SLURM; a
profile's `set-resources` has others. They do not grow when a job is tried again: one that was
killed must still fit.
"""

import sys

from pydantic import BaseModel

from rapid.config.specs import DistillSpec, EvaluateSpec, TrainSpec, served
from rapid.machine.lease import lease_cores, lease_gpus

# 1e6 bytes of main memory for each process. On GPUs the models are larger by far, and each process
# reads one in full before it goes to the GPU.
MEMORY_MB = {"cpu": 6_000, "gpu": 48_000}
# Of training, evaluation and distillation, minutes.
MINUTES = {"cpu": (120, 60, 60), "gpu": (1_440, 240, 720)}
OTHER_MINUTES = 60


def nodes(spec: BaseModel | None) -> int:
    """Return the servers of a job."""
    return spec.compute.nodes if hasattr(spec, "compute") else 1


def cores(spec: BaseModel | None) -> int:
    """Return the CPU cores of a job, on each of its servers."""
    compute = getattr(spec, "compute", None)
    if compute is None:
        return getattr(spec, "threads", 1)
    return compute.threads * (compute.processes // nodes(spec) + served(spec))


def gpus(spec: BaseModel | None) -> int:
    """Return the GPUs of a job, on all its servers together."""
    match spec:
        case DistillSpec() | EvaluateSpec() | TrainSpec() if spec.compute.device == "cpu":
            return 0
        case TrainSpec():
            return spec.compute.processes + served(spec)
        case DistillSpec():
            return spec.tensor_parallel
        case EvaluateSpec():
            return 1
    return 0


def gpus_a_node(spec: BaseModel | None) -> int:
    """Return the GPUs of a job on each of its servers."""
    return gpus(spec) // nodes(spec)


def lease(spec: BaseModel | None) -> None:
    """Lease what the job needs on this server, and say what that is.

    Raises:
        TooFew: the machine has less.
    """
    compute = getattr(spec, "compute", None)
    leased = lease_cores(cores(spec), threads=compute.threads if compute else None)
    gpu_names = lease_gpus(gpus_a_node(spec))
    on = [f"core(s) {', '.join(map(str, leased))}"]
    on += [f"GPU(s) {', '.join(gpu_names)}"] if gpu_names else []
    print(f"on {' and '.join(on)}", file=sys.stderr)


def memory_mb(spec: BaseModel | None) -> int:
    """Return the main memory of a job on each of its servers, in 1e6 bytes."""
    compute = getattr(spec, "compute", None)
    if compute is None:
        return MEMORY_MB["cpu"]
    processes = max(gpus_a_node(spec), compute.processes // nodes(spec))
    return MEMORY_MB[compute.device] * processes


def minutes(spec: BaseModel | None) -> int:
    """Return the minutes within which a job ends, if nothing is wrong."""
    stages = (TrainSpec, EvaluateSpec, DistillSpec)
    for stage, bound in zip(stages, MINUTES[_device(spec)], strict=True):
        if isinstance(spec, stage):
            return bound
    return OTHER_MINUTES


def _device(spec: BaseModel | None) -> str:
    return spec.compute.device if hasattr(spec, "compute") else "cpu"
