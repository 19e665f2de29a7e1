"""Runs SLURM on this machine for tests, as root, with several nodes of one core each.

The configuration, keys and logs of the daemons are in one folder. Nothing outside it changes.
"""

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.subprocesses import wait_for

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
# There are no cgroups and no accounting, which some containers lack. Snakemake looks for finished jobs
# in squeue, where they stay for MinJobAge seconds. slurm.conf needs a line for each setting.
SETTINGS = """
ClusterName=test SlurmctldHost={host} SlurmUser=root AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket ProctrackType=proctrack/linuxproc TaskPlugin=task/none
SelectType=select/cons_tres SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=5,sched_interval=5 AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none MinJobAge=3600 ReturnToService=2
StateSaveLocation={folder}/state SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log SlurmdLogFile={folder}/slurmd-%n.log SlurmctldPort={port}
"""
NODES = """
NodeName=node[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 \
RealMemory=8000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def describe_missing() -> str:
    """Return the reason why SLURM cannot run on this machine; "" if it can."""
    missing_programs = [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name) is None]
    if missing_programs:
        return f"no {', '.join(missing_programs)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "SLURM's daemons want root"


@contextmanager
def run_slurm(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """Run SLURM during the block; yield its environment: SLURM_CONF, and a PATH with its commands."""
    folder.mkdir(parents=True)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    first_port = _find_free_ports(nodes + 1)
    configuration = folder / "slurm.conf"
    ports = {"port": first_port, "first": first_port + 1, "last": first_port + nodes}
    configuration_text = "\n".join(SETTINGS.split()) + NODES
    configuration_text = configuration_text.format(
        host=socket.gethostname(), folder=folder, nodes=nodes, **ports
    )
    configuration.write_text(configuration_text)
    munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    environment["PATH"] = f"{_write_commands(folder, configuration)}:{os.environ['PATH']}"
    daemons = []
    try:
        daemons.append(_start_daemon(munged, folder))
        wait_for(lambda: (folder / "munge.socket").exists())
        daemons.append(_start_daemon(["slurmctld", "-D", "-f", str(configuration)], folder))
        for number in range(1, nodes + 1):
            command = ["slurmd", "-D", "-f", str(configuration), "-N", f"node{number}"]
            daemons.append(_start_daemon(command, folder))
        wait_for(lambda: _count_idle_nodes(environment) == nodes, interval=0.2)
        yield environment
    finally:
        subprocess.run(["scancel", "--user=root"], env=environment, check=False)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()


def _write_commands(folder: Path, configuration: Path) -> Path:
    """Write commands that set SLURM_CONF, because SLURM removes the variable within jobs."""
    commands = folder / "bin"
    commands.mkdir()
    for name in COMMANDS:
        path = commands / name
        path.write_text(
            f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which(name)} "$@"\n', "utf-8"
        )
        path.chmod(0o755)
    return commands


def _start_daemon(command: list[str], folder: Path) -> subprocess.Popen:
    with open(folder / "daemons.log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def run_slurm_command(environment: dict[str, str], *command: str, check: bool = True) -> str:
    """Run one of `COMMANDS`, and return its output."""
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=check)
    return ended.stdout


def _count_idle_nodes(environment: dict[str, str]) -> int:
    command = ("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N")
    return len(run_slurm_command(environment, *command, check=False).split())


def _find_free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    for first in range(20_000 + os.getpid() % 10_000, 60_000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for number, candidate in enumerate(sockets):
                candidate.bind(("", first + number))
            return first
        except OSError:
            continue
        finally:
            for candidate in sockets:
                candidate.close()
    raise AssertionError("no free ports")
