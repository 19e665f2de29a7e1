"""The program of each process of a distributed job, which `rapid.processes.launch` starts."""

import os
import sys
from pathlib import Path

from rapid.config.specs import TrainSpec
from rapid.errors.endings import run_command
from rapid.processes.lifetimes import end_with_parent
from rapid.resources.leases import bind_to_cores, list_usable_cores


def run_process(spec_json: str, model: str, data: str, folder: str) -> None:
    """Train, with this process bound to its part of the job's cores.

    Args:
        spec_json: a `TrainSpec` as JSON.
        model, data, folder: see `rapid.stages.train.train`.
    """
    end_with_parent()
    spec = TrainSpec.model_validate_json(spec_json).with_code_digest()
    # LOCAL_RANK numbers this server's processes from 0. Each has `threads` of the job's cores.
    rank, threads = int(os.environ["LOCAL_RANK"]), spec.compute.threads
    bind_to_cores(list_usable_cores()[rank * threads : (rank + 1) * threads], threads)

    def run_training() -> None:
        from rapid.stages.train import train

        if spec.compute.device == "cpu":
            disable_shared_memory_extension()
        train(spec, Path(model), Path(data), Path(folder))

    if status := run_command("train", run_training, Path(folder)):
        raise SystemExit(status)


def disable_shared_memory_extension() -> None:
    """Keep DeepSpeed from compiling its shared-memory extension, which training does not need.

    A job that is killed while compiling leaves a lock file that blocks all later jobs.
    """
    from deepspeed import ops

    ops.__compatible_ops__["deepspeed_shm_comm"] = False


if __name__ == "__main__":
    run_process(*sys.argv[1:])
