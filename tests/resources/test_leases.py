"""Leases of cores, GPUs and folders: each is held by one process at a time."""

import errno
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from rapid.artifacts.files import BadInput
from rapid.resources.gpus import Gpu, select_gpus
from rapid.resources.leases import (
    lease_cores,
    lease_gpus,
    list_usable_cores,
    lock_folder,
    name_lease_folder,
)
from tests.faults.runs import is_held
from tests.subprocesses import kill_at_end, python

HOLD_CORE = """
import os, sys, time
from rapid.resources.leases import lease_cores
cores = lease_cores(1)
print(*cores, os.environ["OMP_NUM_THREADS"], *sorted(os.sched_getaffinity(0)), flush=True)
time.sleep({seconds})
"""
# Prints the share of new pages in a large array that is allocated for the second time.
REALLOCATE = """
import resource
from rapid.resources.leases import bind_to_cores, list_usable_cores
bind_to_cores(list_usable_cores(), 1)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(40 << 20)
before = faults()
bytearray(40 << 20)
print((faults() - before) * resource.getpagesize() / (40 << 20))
"""


@pytest.fixture(autouse=True)
def leases(tmp_path, monkeypatch) -> Path:
    """Give the test a temporary folder of its own, and return the path of the folder of leases."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # so that tempfile reads TMPDIR again
    return name_lease_folder()


def start_core_holder(seconds=60.0):
    code = HOLD_CORE.format(seconds=seconds)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_machines_that_share_a_temporary_folder_have_separate_leases(monkeypatch):
    of_this_machine = name_lease_folder()
    monkeypatch.setattr(Path, "read_text", lambda path: "id of another boot\n")
    assert name_lease_folder().parent == of_this_machine.parent
    assert name_lease_folder() != of_this_machine


def test_jobs_share_no_core_and_wait_until_the_holder_of_one_is_killed(leases):
    holders = [start_core_holder() for _ in list_usable_cores()]
    with kill_at_end(*holders):
        lines = [holder.stdout.readline().split() for holder in holders]
        assert sorted(int(line[0]) for line in lines) == list_usable_cores()
        for core, threads, *affinity in lines:
            assert threads == "1"
            assert affinity == [core]
        assert leases.stat().st_mode & 0o777 == 0o700
        waiting_job = start_core_holder(seconds=0)
        with kill_at_end(waiting_job):
            time.sleep(1.0)
            assert waiting_job.poll() is None
            holders[0].kill()
            assert waiting_job.stdout.readline().split()[0] == lines[0][0]


def test_the_threads_of_an_already_imported_torch_are_set():
    """A child of the fork server has imported torch, which reads the environment at import only."""
    code = """
import sys, types
from rapid.resources.leases import lease_cores
sys.modules["torch"] = types.SimpleNamespace(set_num_threads=lambda n: print("threads", n))
lease_cores(1, threads=3)
"""
    assert python("-c", code).stdout == "threads 3\n"


def test_more_cores_than_the_machine_has_are_refused():
    with pytest.raises(BadInput, match="1000 cores are needed, but"):
        lease_cores(1000)


def make_link(folder):
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


def make_dangling_link(folder):
    folder.symlink_to(folder.parent / "nowhere")


def make_folder_open_to_all(folder):
    folder.mkdir()
    folder.chmod(0o777)


def make_folder_of_another_user(folder):
    folder.mkdir()
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize(
    "make_folder",
    [make_link, make_dangling_link, make_folder_open_to_all, make_folder_of_another_user, os.mknod],
)
def test_a_folder_of_leases_that_other_users_control_is_refused(leases, make_folder):
    """Any user can create the folder in a temporary directory first."""
    if make_folder is make_folder_of_another_user and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    make_folder(leases)
    with pytest.raises(BadInput, match=r"cannot be trusted.*set TMPDIR"):
        lease_cores(1)
    assert list(leases.parent.glob("elsewhere/*")) == []


GPUS = [Gpu(str(number), f"GPU-{number}{number}{number}-a", 80_000) for number in range(4)]
HOLD_GPUS = """
import os, sys, time
import rapid.resources.leases
from rapid.resources.gpus import Gpu, select_gpus
gpus = [Gpu(str(n), f"GPU-{{n}}{{n}}{{n}}-a", 80_000) for n in range(4)]
rapid.resources.leases.list_visible_gpus = lambda: select_gpus(gpus, {visible!r})
rapid.resources.leases.lease_gpus({count})
print(os.environ["CUDA_VISIBLE_DEVICES"], "torch" in sys.modules, flush=True)
time.sleep(60)
"""


def start_gpu_holder(count, visible="0,1,2,3"):
    code = HOLD_GPUS.format(count=count, visible=visible)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], **pipes)


def test_jobs_share_no_gpu_and_get_as_many_as_they_request():
    with kill_at_end(first := start_gpu_holder(3)):
        assert first.stdout.readline().split() == ["0,1,2", "False"]
        second = start_gpu_holder(2)
        assert second.stderr.readline() == (
            "waiting until other jobs leave 2 of 4 GPU(s) free\n"  # one is free
        )
        third = start_gpu_holder(1)
        assert third.stderr.readline().startswith("waiting until other jobs leave 1 of 4 ")
    with kill_at_end(second, third):
        jobs = second, third
        names = [name for job in jobs for name in job.stdout.readline().split()[0].split(",")]
    assert len(names) == len(set(names)) == 3


def test_a_gpu_is_recognized_under_any_number():
    """A SLURM job may see one GPU under another number or by its UUID."""
    with kill_at_end(first := start_gpu_holder(1, "2")):
        assert first.stdout.readline().split()[0] == "2"
        with kill_at_end(second := start_gpu_holder(1, "GPU-222,GPU-333")):
            # The whole UUID, because vLLM does not accept a prefix.
            assert second.stdout.readline().split()[0] == "GPU-333-a"


def test_gpus_are_selected_by_the_rules_of_cuda():
    assert [gpu.name for gpu in select_gpus(GPUS, "3,GPU-1")] == ["3", "GPU-111-a"]
    assert select_gpus(GPUS, "") == select_gpus(GPUS, "NoDevFiles") == []
    # CUDA ignores the first invalid number and all after it.
    assert [gpu.name for gpu in select_gpus(GPUS, "0,-1,1")] == ["0"]
    assert [gpu.name for gpu in select_gpus(GPUS, "1,1")] == ["1"]


def test_a_job_without_gpus_sees_none(leases, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    leases.mkdir(mode=0o700)
    with FileLock(leases / "gather-GPU.lock"):  # a waiting job does not block one without GPUs
        assert lease_gpus(0) == []
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_too_few_gpus_are_refused_with_advice(monkeypatch):
    monkeypatch.setattr("rapid.resources.leases.list_visible_gpus", lambda: GPUS[:1])
    with pytest.raises(
        BadInput, match=r"needs 2 GPU\(s\), but 1 can be used. Lower compute.processes.*MIG"
    ):
        lease_gpus(2)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library has no mallopt")
def test_freed_memory_is_reused():
    assert float(python("-c", REALLOCATE).stdout) < 0.1


def test_a_waiting_run_gets_the_folder_when_the_run_before_it_ends(tmp_path, monkeypatch):
    """The run that ends deletes the folder, while the waiting run may be creating its lock."""
    # The machine may be busy.
    monkeypatch.setattr("rapid.resources.leases.FOLDER_LOCK_SECONDS", 60.0)
    folder, (reading, writing) = tmp_path / "run/checkpoints", os.pipe()
    if not (holder := os.fork()):
        try:
            with lock_folder(folder):
                os.write(writing, b".")
                time.sleep(0.3)
                shutil.rmtree(folder, ignore_errors=True)
                time.sleep(0.3)
                os.write(writing, b".")
        finally:
            os._exit(0)
    assert os.read(reading, 1)
    with lock_folder(folder):
        assert is_held(folder / "lock")
    assert os.waitpid(holder, 0)[1] == 0
    assert os.read(reading, 1)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Timeout("lock"), r"/run: in use by another process\. Wait until it ends"),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            r"/run: its lock \S+/checkpoints/lock cannot be opened: Permission denied\. If another",
        ),
    ],
    ids=["just-locked", "of-another-user"],
)
def test_a_lock_without_a_readable_owner_is_reported_with_advice(
    tmp_path, monkeypatch, error, message
):
    """The error is simulated, because root may open the files of all users."""
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/lock").touch()

    def raise_error(*_, **__):
        raise error

    monkeypatch.setattr(FileLock, "acquire", raise_error)
    with pytest.raises(BadInput, match=message), lock_folder(tmp_path / "run/checkpoints"):
        pass
