"""Training in several processes, where `compute.processes` is more than one.

1. The process that `rapid train` started becomes accelerate's launcher, with ZeRO-2 as the paper
   has it (workflow/accelerate/zero2.yaml). It holds the leases; its processes divide the cores and
   the GPUs.
2. With several servers (`compute.nodes`), srun starts such a launcher on each, within the SLURM
   job.
3. Each process runs `rapid.stages.train_process`; only the first writes files.
"""

import os
import socket
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from rapid.artifacts.files import BadInput
from rapid.artifacts.runs import CHECKPOINTS
from rapid.config.specs import TrainSpec
from rapid.resources.leases import lease_folder
from rapid.resources.requests import cores, gpus, lease

CONFIG = Path(__file__).resolve().parents[2] / "workflow" / "accelerate" / "zero2.yaml"
PROCESS = "rapid.stages.train_process"  # what a launcher starts, in each process


def launch(spec: TrainSpec, paths: list[str], address: str = "", port: int = 0, rank: int = 0):
    """Train in this server's processes, and return when all have ended.

    Args:
        paths: the model's folder, the data, the run's folder.
        address, port: of the first server; not needed where it is the only one.
        rank: of this server.

    Raises:
        SystemExit: a process failed; what it said is above.
    """
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if spec.compute.device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    folder = Path(paths[-1])
    folder.mkdir(parents=True, exist_ok=True)
    logs = TemporaryDirectory(dir=folder, prefix=".launch-")  # else torch leaves one in /tmp
    options = {
        "config_file": CONFIG,
        "log_dir": logs.name,
        "num_processes": spec.compute.processes,
        "num_machines": spec.compute.nodes,
        "machine_rank": rank,
        "main_process_ip": address or None,
        "main_process_port": port,
        "deepspeed_multinode_launcher": "standard",
    }
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    script = ["--module", PROCESS, spec.model_dump_json(), *paths]
    parsed: Namespace = launch_command_parser().parse_args([*given, *script])
    parsed.use_cpu = spec.compute.device == "cpu"
    try:
        with logs:
            launch_command(parsed)
    except ChildFailedError as error:
        print(f"rapid train: a process failed: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except SignalException as told:  # its processes were told, too, and have ended
        raise SystemExit(128 + told.sigval) from None


def launch_on_nodes(spec: TrainSpec, paths: list[str]) -> None:
    """Become srun, which starts a launcher on each server of this SLURM job.

    Raises:
        BadInput: this is no SLURM job.
    """
    if "SLURM_JOB_ID" not in os.environ:
        raise BadInput(
            f"compute.nodes: {spec.compute.nodes}: only a SLURM job has several servers. Run the "
            "workflow with --profile profiles/slurm, or set compute.nodes: 1"
        )
    nodes, all_gpus = spec.compute.nodes, gpus(spec)
    command = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    command += [f"--cpus-per-task={cores(spec)}", "--kill-on-bad-exit=1"]
    command += [f"--gpus={all_gpus}"] if all_gpus else []
    command += [sys.executable, "-m", "rapid.processes.launch"]
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    os.execvp("srun", [*command, socket.gethostname(), str(port), spec.model_dump_json(), *paths])


def node(address: str, port: str, spec: str, *paths: str) -> None:
    """Lease this server's cores and GPUs and launch its processes: what srun starts on each."""
    job, rank = TrainSpec.model_validate_json(spec), int(os.environ["SLURM_PROCID"])
    with nullcontext() if rank else lease_folder(Path(paths[-1], CHECKPOINTS)):
        lease(job)
        launch(job, list(paths), address, int(port), rank)


if __name__ == "__main__":
    node(*sys.argv[1:])
