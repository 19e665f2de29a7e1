"""Starts a vLLM server for the paper's naive GRPO, on a GPU that only the server uses.

TRL's trainers can use vLLM's server if it is started with the arguments of
`trl.scripts.vllm_serve`. The trainer sends its weights to the server over NCCL and requests
completions over HTTP. The server listens on this machine's loopback interface only. It ends when
the job ends or is killed.
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
from rapid.resources.gpus import VISIBLE_DEVICES
from rapid.resources.leases import bind_to_cores, list_usable_cores

HOST = "127.0.0.1"
# Environment variables with the server's ports for HTTP and for NCCL, for the trainer's processes.
PORT_VARIABLE, GROUP_PORT_VARIABLE = "RAPID_SERVER_PORT", "RAPID_SERVER_GROUP_PORT"
START_SECONDS = 900  # time that the server may take to read the model and compile kernels
STOP_SECONDS = 30  # time that the server may take to end after SIGTERM, and again after SIGKILL
POLL_SECONDS = 1.0  # interval between requests for the server's health


class ServerDied(RuntimeError):
    """The vLLM server ended, or does not answer."""


def build_trainer_settings() -> dict:
    """Return GRPOConfig's settings for sampling from the server that `run_server` started."""
    return {
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_host": HOST,
        "vllm_server_port": int(os.environ[PORT_VARIABLE]),
        "vllm_group_port": int(os.environ[GROUP_PORT_VARIABLE]),
    }


@contextmanager
def run_server(spec: TrainSpec, model: Path) -> Iterator[None]:
    """Run a server while the context is open, on this job's last GPU and some of its cores.

    The server has the last `compute.threads` cores. The other GPUs and cores are left to this
    process, which trains.

    Raises:
        ServerDied: the server does not answer within `START_SECONDS`.
    """
    *trainer_gpus, server_gpu = os.environ[VISIBLE_DEVICES].split(",")
    cores, threads = list_usable_cores(), spec.compute.threads
    port, group_port = _find_free_ports()
    # SIGTERM then raises SystemExit, so that `finally` below stops the server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def prepare_server_process() -> None:
        # At SIGTERM the server ends its own child, the engine. SIGKILL would leave it on the GPU.
        end_with_parent(signal.SIGTERM)
        bind_to_cores(cores[-threads:], threads)

    server = subprocess.Popen(
        build_serve_command(model, port, spec),
        # In this mode vLLM accepts weights from a trainer.
        env=os.environ | {VISIBLE_DEVICES: server_gpu, "VLLM_SERVER_DEV_MODE": "1"},
        preexec_fn=prepare_server_process,
        start_new_session=True,  # so that `_stop_server` can signal the server and its workers
    )
    try:
        _wait_until_ready(server, port)
        os.environ |= {
            VISIBLE_DEVICES: ",".join(trainer_gpus),
            PORT_VARIABLE: str(port),
            GROUP_PORT_VARIABLE: str(group_port),
        }
        bind_to_cores(cores[:-threads], threads)
        yield
    finally:
        _stop_server(server)


def _find_free_ports() -> tuple[int, int]:
    with socket.create_server((HOST, 0)) as first, socket.create_server((HOST, 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]


def build_serve_command(model: Path, port: int, spec: TrainSpec) -> list[str]:
    """Return the server's command line as TRL needs it, with the trainer's precision."""
    from trl.scripts.vllm_serve import ScriptArguments, build_command

    arguments = ScriptArguments(
        model=str(model),
        host=HOST,
        port=port,
        dtype=spec.training.precision,
        max_model_len=-1,  # as long as the model and the GPU's memory allow
        log_level="warning",
    )
    return build_command(arguments, ["--seed", str(spec.run.seed), "--load-format", "safetensors"])


def _wait_until_ready(server: subprocess.Popen, port: int) -> None:
    from urllib.request import urlopen

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise ServerDied(
                f"vLLM's server ended with status {server.returncode}; its messages are above"
            )
        try:
            with urlopen(f"http://{HOST}:{port}/health", timeout=POLL_SECONDS):
                return
        except OSError:
            time.sleep(POLL_SECONDS)
    raise ServerDied(f"vLLM's server did not answer within {START_SECONDS} s")


def _stop_server(server: subprocess.Popen) -> None:
    """Send SIGTERM to the server and its workers, and then SIGKILL to those that are left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
