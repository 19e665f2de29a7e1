"""Computes the cores, GPUs, memory and time that a job requests, from its spec.

A spec has the parameters that decide a job's result (`rapid.config.specs`); it is None for a job
without such parameters, such as `preflight`. A server is a machine, also called a node. A job
leases its cores and GPUs (`rapid.resources.leases`). Memory and time are limits for SLURM;
`set-resources` in a Snakemake profile overrides them. They do not grow when Snakemake retries a
killed job.
"""

import sys

from pydantic import BaseModel

from rapid.artifacts.files import BadInput
from rapid.config.params_schema import Compute
from rapid.config.specs import (
    DistillSpec,
    EvaluateSpec,
    FetchSpec,
    TrainSpec,
    uses_vllm_server,
)
from rapid.resources.gpus import explain_unusable_gpus
from rapid.resources.leases import lease_cores, lease_gpus

GradingSpec = DistillSpec | EvaluateSpec | TrainSpec
# Main memory of each process in 1e6 bytes, by device. Models that are trained on GPUs are far
# larger, and each process reads a whole model into main memory before it moves it to its GPU.
MEMORY_MB = {"cpu": 6_000, "gpu": 48_000}
# Main memory of each further grader of a process; Lean takes the most.
GRADER_MEMORY_MB = 1_500
# Time limits in minutes, by device and class of spec.
MINUTES = {
    "cpu": {TrainSpec: 120, EvaluateSpec: 60, DistillSpec: 60, FetchSpec: 720},
    "gpu": {TrainSpec: 1_440, EvaluateSpec: 240, DistillSpec: 720},
}
DEFAULT_MINUTES = 60  # for specs that MINUTES does not list


def _get_compute(spec: BaseModel | None) -> Compute:
    """Return a spec's section `compute`, or else a new one with the spec's threads (default: 1)."""
    return getattr(spec, "compute", None) or Compute(threads=getattr(spec, "threads", 1))


def count_nodes(spec: BaseModel | None) -> int:
    """Return the number of servers of a job."""
    return _get_compute(spec).nodes


def count_cores(spec: BaseModel | None) -> int:
    """Return the number of CPU cores of a job on each of its servers."""
    compute = _get_compute(spec)
    # A vLLM server, which takes as many cores as a process, is only used on a single node.
    return compute.threads * (compute.processes // compute.nodes + uses_vllm_server(spec))


def count_gpus(spec: BaseModel | None) -> int:
    """Return the number of GPUs of a job on all its servers together."""
    compute = _get_compute(spec)
    if compute.device == "cpu":
        return 0
    if isinstance(spec, TrainSpec):
        return compute.processes + uses_vllm_server(spec)
    return getattr(spec, "tensor_parallel", 1)


def count_gpus_per_node(spec: BaseModel | None) -> int:
    """Return the number of GPUs of a job on each of its servers."""
    return count_gpus(spec) // count_nodes(spec)


def lease_resources(spec: BaseModel | None) -> None:
    """Lease the cores and GPUs that the job needs on this server, and print which they are.

    Raises:
        BadInput: the machine has fewer cores or GPUs than the job needs, or torch cannot use them.
    """
    cores = lease_cores(count_cores(spec), _get_compute(spec).threads)
    gpu_names = lease_gpus(count_gpus_per_node(spec))
    leases = [f"core(s) {', '.join(map(str, cores))}"]
    leases += [f"GPU(s) {', '.join(gpu_names)}"] if gpu_names else []
    print(f"running on {' and '.join(leases)}", file=sys.stderr)
    if gpu_names and (problem := explain_unusable_gpus(len(gpu_names))):
        raise BadInput(f"compute.device: gpu: {problem}")


def get_memory_limit_mb(spec: BaseModel | None, process_mb: int = 0) -> int:
    """Return the main memory that a job may use on each of its servers, in 1e6 bytes.

    Args:
        process_mb: memory of a process with one grader; by default a generous limit, `MEMORY_MB`.
    """
    compute = _get_compute(spec)
    processes = max(count_gpus_per_node(spec), compute.processes // compute.nodes)
    # The time limit of a verdict is 0 in SFT, which grades nothing.
    grades = isinstance(spec, GradingSpec) and spec.timeout > 0
    further_graders = compute.threads - 1 if grades else 0
    process_mb = process_mb or MEMORY_MB[compute.device]
    return (process_mb + GRADER_MEMORY_MB * further_graders) * processes


def get_time_limit_minutes(spec: BaseModel | None) -> int:
    """Return the time limit of a job in minutes, which a job exceeds only if something is wrong."""
    return MINUTES[_get_compute(spec).device].get(type(spec), DEFAULT_MINUTES)
