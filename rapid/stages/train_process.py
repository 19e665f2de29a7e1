"""One of the processes of a training job: what the launcher starts (`rapid.processes.launch`)."""

import os
import sys
from pathlib import Path

from rapid.config.specs import TrainSpec
from rapid.errors.endings import run_command
from rapid.processes.lifetimes import end_with_parent
from rapid.resources.leases import bind_to_cores, list_usable_cores


def run(spec: str, model: str, data: str, folder: str) -> None:
    """Train, on this process's part of the job's cores."""
    end_with_parent()
    job = TrainSpec.model_validate_json(spec).with_code()
    local, threads = int(os.environ["LOCAL_RANK"]), job.compute.threads
    bind_to_cores(list_usable_cores()[local * threads : (local + 1) * threads], threads)

    def work() -> None:
        from rapid.stages.train import train

        if job.compute.device == "cpu":
            without_shared_memory()
        train(job, Path(model), Path(data), Path(folder))

    if status := run_command("train", work, Path(folder)):
        raise SystemExit(status)


def without_shared_memory() -> None:
    """Keep DeepSpeed from compiling what only its inference on CPUs uses.

    A job that is killed while it compiles leaves a lock that blocks all later jobs.
    """
    from deepspeed import ops

    ops.__compatible_ops__["deepspeed_shm_comm"] = False


if __name__ == "__main__":
    run(*sys.argv[1:])
