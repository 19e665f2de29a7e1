"""One of the processes of a training job: what the launcher starts (`rapid.machine.launch`)."""

import os
import sys
from pathlib import Path

from rapid.config.specs import TrainSpec
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.machine.lease import bind, usable_cores
from rapid.machine.processes import end_with_parent


def run(spec: str, model: str, data: str, folder: str) -> None:
    """Train, on this process's part of the job's cores."""
    end_with_parent()
    job = TrainSpec.model_validate_json(spec).with_code()
    local, threads = int(os.environ["LOCAL_RANK"]), job.compute.threads
    bind(usable_cores()[local * threads : (local + 1) * threads], threads)

    from rapid.stages.train import train

    try:
        train(job, Path(model), Path(data), Path(folder))
    except (GraderDied, GradingFailed) as error:
        print(f"rapid train: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    run(*sys.argv[1:])
