"""What a job asks of a machine, from its spec: cores, GPUs, memory, time.

Cores and GPUs are what it leases (`rapid.resources.leases`). Memory and time are bounds, for SLURM;
a profile's `set-resources` replaces them. They do not grow when a job is tried again: one that was
killed must still fit.
"""

import sys

from pydantic import BaseModel

from rapid.config.sections import Compute
from rapid.config.specs import DistillSpec, EvaluateSpec, TrainSpec, uses_vllm_server
from rapid.resources.leases import lease_cores, lease_gpus

# 1e6 bytes of main memory for each process. On GPUs the models are larger by far, and each process
# reads one in full before it goes to the GPU.
MEMORY_MB = {"cpu": 6_000, "gpu": 48_000}
MINUTES = {
    "cpu": {TrainSpec: 120, EvaluateSpec: 60, DistillSpec: 60},
    "gpu": {TrainSpec: 1_440, EvaluateSpec: 240, DistillSpec: 720},
}
OTHER_MINUTES = 60


def _compute(spec: BaseModel | None) -> Compute:
    """Return what a job runs on: its spec's section `compute`, or its threads, or one core."""
    return getattr(spec, "compute", None) or Compute(threads=getattr(spec, "threads", 1))


def nodes(spec: BaseModel | None) -> int:
    """Return the servers of a job."""
    return _compute(spec).nodes


def cores(spec: BaseModel | None) -> int:
    """Return the CPU cores of a job, on each of its servers."""
    compute = _compute(spec)
    return compute.threads * (compute.processes // compute.nodes + uses_vllm_server(spec))


def gpus(spec: BaseModel | None) -> int:
    """Return the GPUs of a job, on all its servers together."""
    compute = _compute(spec)
    if compute.device == "cpu":
        return 0
    if isinstance(spec, TrainSpec):
        return compute.processes + uses_vllm_server(spec)
    return getattr(spec, "tensor_parallel", 1)


def gpus_a_node(spec: BaseModel | None) -> int:
    """Return the GPUs of a job on each of its servers."""
    return gpus(spec) // nodes(spec)


def lease(spec: BaseModel | None) -> None:
    """Lease what the job needs on this server, and say what that is.

    Raises:
        BadInput: the machine has less.
    """
    leased = lease_cores(cores(spec), threads=_compute(spec).threads)
    gpu_names = lease_gpus(gpus_a_node(spec))
    on = [f"core(s) {', '.join(map(str, leased))}"]
    on += [f"GPU(s) {', '.join(gpu_names)}"] if gpu_names else []
    print(f"on {' and '.join(on)}", file=sys.stderr)


def memory_mb(spec: BaseModel | None) -> int:
    """Return the main memory of a job on each of its servers, in 1e6 bytes."""
    compute = _compute(spec)
    processes = max(gpus_a_node(spec), compute.processes // compute.nodes)
    return MEMORY_MB[compute.device] * processes


def minutes(spec: BaseModel | None) -> int:
    """Return the minutes within which a job ends, if nothing is wrong."""
    return MINUTES[_compute(spec).device].get(type(spec), OTHER_MINUTES)
