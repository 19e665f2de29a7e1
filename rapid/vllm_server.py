"""A vLLM server on a GPU of its own, from which a trainer samples: the paper's naive GRPO.

TRL's trainers talk to vLLM's own server when it is started as `trl.scripts.vllm_serve` would. They
send it their weights over NCCL, and ask it for completions over HTTP. The server is this machine's,
answers nobody else, and ends with the job, however that ends.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rapid.config.specs import TrainSpec
from rapid.processes.lifetimes import end_with_parent
from rapid.resources.gpus import VISIBLE
from rapid.resources.leases import bind, usable_cores

HOST = "127.0.0.1"
PORT, GROUP_PORT = "RAPID_SERVER_PORT", "RAPID_SERVER_GROUP_PORT"  # for the trainer's processes
START_SECONDS = 900  # reads a model and compiles its kernels
STOP_SECONDS = 30
POLL_SECONDS = 1.0


class ServerDied(RuntimeError):
    """The server ended, or does not answer."""


def trainer_settings() -> dict:
    """Return what GRPOConfig needs to sample from the server that `serving` started."""
    return {
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_host": HOST,
        "vllm_server_port": int(os.environ[PORT]),
        "vllm_group_port": int(os.environ[GROUP_PORT]),
    }


@contextmanager
def serving(spec: TrainSpec, model: Path) -> Iterator[None]:
    """Meanwhile a server samples on the last of this process's GPUs and cores; the others are left.

    Raises:
        ServerDied: it does not answer within `START_SECONDS`.
    """
    *ours, last = os.environ[VISIBLE].split(",")
    cores, threads = usable_cores(), spec.compute.threads
    with socket.create_server((HOST, 0)) as one, socket.create_server((HOST, 0)) as other:
        port, group_port = one.getsockname()[1], other.getsockname()[1]  # nobody's, so far
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # by `finally`

    def become_server() -> None:
        end_with_parent()
        bind(cores[-threads:], threads)

    started = subprocess.Popen(
        serve_command(model, port, spec),
        env=os.environ | {VISIBLE: last, "VLLM_SERVER_DEV_MODE": "1"},
        preexec_fn=become_server,
        start_new_session=True,  # its workers are stopped with it
    )
    try:
        _wait(started, port)
        os.environ |= {VISIBLE: ",".join(ours), PORT: str(port), GROUP_PORT: str(group_port)}
        bind(cores[:-threads], threads)
        yield
    finally:
        _stop(started)


def serve_command(model: Path, port: int, spec: TrainSpec) -> list[str]:
    """Return the server's command line, as TRL wants it, in the trainer's precision."""
    from trl.scripts.vllm_serve import ScriptArguments, build_command

    served = {"host": HOST, "port": port, "dtype": spec.training.precision, "log_level": "warning"}
    asked = ["--seed", str(spec.run.seed), "--load-format", "safetensors"]
    return build_command(ScriptArguments(model=str(model), **served), asked)


def _wait(started: subprocess.Popen, port: int) -> None:
    from urllib.request import urlopen

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if started.poll() is not None:
            raise ServerDied(f"vLLM's server ended with status {started.returncode}; see above")
        try:
            with urlopen(f"http://{HOST}:{port}/health", timeout=POLL_SECONDS):
                return
        except OSError:
            time.sleep(POLL_SECONDS)
    raise ServerDied(f"vLLM's server did not answer within {START_SECONDS} s")


def _stop(started: subprocess.Popen) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(started.pid, number)
            started.wait(STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
