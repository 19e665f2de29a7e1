"""Trains one run in several processes, if the parameter `compute.processes` is above 1.

1. The process of `rapid train` becomes accelerate's launcher, with DeepSpeed's ZeRO-2 as in the
   paper (workflow/accelerate/zero2.yaml). The launcher leases cores and GPUs
   (`rapid.resources.leases`), and its training processes divide them.
2. With several servers (`compute.nodes`), srun starts such a launcher on each server of the SLURM
   job.
3. Each training process runs `rapid.stages.train_process`. Only the first process writes files.
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
from rapid.resources.leases import lock_folder
from rapid.resources.requests import count_cores, count_gpus, lease_resources

ACCELERATE_CONFIG = Path(__file__).resolve().parents[2] / "workflow" / "accelerate" / "zero2.yaml"
PROCESS_MODULE = "rapid.stages.train_process"  # the program of each training process
# Seconds that the processes have to finish an inference batch and save a checkpoint after SIGTERM
# or SIGINT. torch's launcher then kills them; without the variable after 30 seconds. It applies to
# signals only: if a process fails, the launcher kills the others after 30 seconds in any case.
SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
SHUTDOWN_SECONDS = 600


def launch_processes(
    spec: TrainSpec, paths: list[str], address: str = "", port: int = 0, rank: int = 0
) -> None:
    """Start this server's training processes, and wait until they have ended.

    Args:
        paths: the model's folder, the data, the run's folder.
        address, port: address and port of the first server; not needed if there is only one.
        rank: index of this server.

    Raises:
        SystemExit: a training process failed, after printing its own messages, or this process
            received a signal.
    """
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if spec.compute.device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"  # else DeepSpeed would use the machine's GPUs
    os.environ.setdefault(SHUTDOWN_VARIABLE, str(SHUTDOWN_SECONDS))
    folder = Path(paths[-1])
    folder.mkdir(parents=True, exist_ok=True)
    logs = TemporaryDirectory(dir=folder, prefix=".launch-")  # else torch leaves its logs in /tmp
    options = {
        "config_file": ACCELERATE_CONFIG,
        "log_dir": logs.name,
        "num_processes": spec.compute.processes,
        "num_machines": spec.compute.nodes,
        "machine_rank": rank,
        "main_process_ip": address or None,
        "main_process_port": port,
        "deepspeed_multinode_launcher": "standard",
    }
    flags = [f"--{name}={value}" for name, value in options.items() if value is not None]
    script = ["--module", PROCESS_MODULE, spec.model_dump_json(), *paths]
    args: Namespace = launch_command_parser().parse_args([*flags, *script])
    args.use_cpu = spec.compute.device == "cpu"
    try:
        with logs:
            launch_command(args)
    except ChildFailedError as error:
        print(f"rapid train: a process failed: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except SignalException as error:  # the training processes have received it too, and ended
        raise SystemExit(128 + error.sigval) from None


def launch_on_nodes(spec: TrainSpec, paths: list[str]) -> None:
    """Replace this process by srun, which starts a launcher on each server of this SLURM job.

    Raises:
        BadInput: this is not a SLURM job.
    """
    if "SLURM_JOB_ID" not in os.environ:
        raise BadInput(
            f"compute.nodes: {spec.compute.nodes}: only a SLURM job has several servers. Run the "
            "workflow with --profile profiles/slurm, or set compute.nodes: 1"
        )
    nodes, gpus = spec.compute.nodes, count_gpus(spec)
    command = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    command += [f"--cpus-per-task={count_cores(spec)}", "--kill-on-bad-exit=1"]
    # --gpus alone may be divided unevenly. It replaces $SLURM_GPUS, which may name a GPU model.
    command += [f"--gpus={gpus}", f"--gpus-per-node={gpus // nodes}"] if gpus else []
    command += [sys.executable, "-m", "rapid.processes.launch"]
    with socket.socket() as free_socket:
        free_socket.bind(("", 0))
        port = free_socket.getsockname()[1]
    os.execvp("srun", [*command, socket.gethostname(), str(port), spec.model_dump_json(), *paths])


def launch_node(address: str, port: str, spec_json: str, *paths: str) -> None:
    """Lease this server's cores and GPUs, and run its training processes.

    srun calls this on each server.
    """
    spec, rank = TrainSpec.model_validate_json(spec_json), int(os.environ["SLURM_PROCID"])
    # Only the first server locks the run's folder, which all servers share.
    with nullcontext() if rank else lock_folder(Path(paths[-1], CHECKPOINTS)):
        lease_resources(spec)
        launch_processes(spec, list(paths), address, int(port), rank)


if __name__ == "__main__":
    launch_node(*sys.argv[1:])
