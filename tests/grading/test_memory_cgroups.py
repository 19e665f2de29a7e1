"""Memory limits of grader processes: cgroups, the address space, and the OOM score."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rapid.grading import memory_cgroups


@pytest.fixture
def fake_cgroups(tmp_path, monkeypatch):
    """Folders and files like those of cgroup v2, with a delegated memory controller."""
    home = tmp_path / "a.slice"
    home.mkdir()
    (home / "cgroup.subtree_control").write_text("cpu memory\n")
    membership = tmp_path / "membership"
    membership.write_text("4:memory:/v1\n0::/a.slice\n")
    monkeypatch.setattr(memory_cgroups, "_MOUNT", tmp_path)
    monkeypatch.setattr(memory_cgroups, "_OWN_GROUP_FILE", membership)
    memory_cgroups._find_groups_folder.cache_clear()
    yield home
    memory_cgroups._find_groups_folder.cache_clear()


@pytest.fixture
def no_cgroups(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_cgroups, "_OWN_GROUP_FILE", tmp_path / "none")
    memory_cgroups._find_groups_folder.cache_clear()
    yield
    memory_cgroups._find_groups_folder.cache_clear()


def run_limited(*arguments, **options) -> str:
    command = memory_cgroups.limit_memory([*arguments], **options)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


PRINT_ADDRESS_SPACE = "import resource; print(*resource.getrlimit(resource.RLIMIT_AS))"


def test_a_grader_is_killed_first_when_memory_runs_out():
    assert run_limited("cat", "/proc/self/oom_score_adj").strip() == "1000"


def test_a_limited_command_gets_its_arguments_unchanged():
    assert run_limited("printf", "%s|", "a b", "", "$HOME", memory_mb=10_000) == "a b||$HOME|"


def test_the_address_space_is_limited_without_cgroups(no_cgroups):
    soft_limit, hard_limit = map(
        int, run_limited(sys.executable, "-S", "-c", PRINT_ADDRESS_SPACE, memory_mb=1000).split()
    )
    assert soft_limit == hard_limit
    assert 999_998_000 < soft_limit <= 1_000_000_000


def test_the_limit_of_the_address_space_can_be_switched_off(no_cgroups):
    unlimited = run_limited(sys.executable, "-S", "-c", PRINT_ADDRESS_SPACE)
    options = {"memory_mb": 1000, "address_space": False}
    assert run_limited(sys.executable, "-S", "-c", PRINT_ADDRESS_SPACE, **options) == unlimited


def test_a_cgroup_limits_memory_where_cgroups_are_delegated(fake_cgroups):
    unlimited = run_limited(sys.executable, "-S", "-c", PRINT_ADDRESS_SPACE)
    assert (
        run_limited(sys.executable, "-S", "-c", PRINT_ADDRESS_SPACE, memory_mb=1000) == unlimited
    )  # the cgroup is the limit
    [group] = [
        folder
        for folder in fake_cgroups.glob("rapid-*")
        if read_group_file(folder, "memory.max") == "1000000000"
    ]
    assert int(read_group_file(group, "cgroup.procs")) > 0
    assert read_group_file(group, "memory.swap.max") == "0"


def test_removing_the_cgroup_of_a_command_keeps_other_cgroups(fake_cgroups):
    first_command, second_command = (
        memory_cgroups.limit_memory(["true"], memory_mb=megabytes) for megabytes in (1000, 2000)
    )
    for group in fake_cgroups.glob("rapid-*"):
        for file in group.iterdir():  # the kernel removes its own with the folder
            file.unlink()
    before = {*fake_cgroups.glob("rapid-*")}
    memory_cgroups.remove_group(first_command)
    # twice, and within another command
    memory_cgroups.remove_group(["sh", "-c", "exec", *first_command])
    assert len(before - {*fake_cgroups.glob("rapid-*")}) == 1
    memory_cgroups.remove_group(second_command)
    assert len(before - {*fake_cgroups.glob("rapid-*")}) == 2


def read_group_file(group: Path, name: str) -> str:
    return (group / name).read_text().strip()


def test_a_command_fails_if_its_cgroup_accepts_no_process(fake_cgroups):
    command = memory_cgroups.limit_memory(["true"], memory_mb=1000)
    [group] = [
        folder
        for folder in fake_cgroups.glob("rapid-*")
        if read_group_file(folder, "memory.max") == "1000000000"
    ]
    (group / "cgroup.procs").unlink(missing_ok=True)
    (group / "cgroup.procs").mkdir()
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode != 0


def test_no_cgroup_is_made_without_a_delegated_memory_controller(fake_cgroups):
    (fake_cgroups / "cgroup.subtree_control").write_text("cpu\n")
    run_limited("true", memory_mb=10_000)
    assert list(fake_cgroups.glob("rapid-*")) == []


def test_no_cgroup_is_left_in_a_folder_whose_cgroups_accept_no_process(fake_cgroups, monkeypatch):
    monkeypatch.setattr(memory_cgroups, "_JOIN_FILE", "missing/cgroup.procs")
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)  # the kernel removes its files, too
    run_limited("true", memory_mb=10_000)
    assert list(fake_cgroups.glob("rapid-*")) == []


def test_no_cgroup_is_left_if_its_limit_cannot_be_written(fake_cgroups, monkeypatch):
    def refuse(path, _):
        raise PermissionError(path)

    monkeypatch.setattr(Path, "write_text", refuse)
    run_limited("true", memory_mb=10_000)
    assert list(fake_cgroups.glob("rapid-*")) == []


def test_cgroups_of_dead_processes_are_removed_and_foreign_ones_kept(fake_cgroups):
    stale_group = fake_cgroups / f"rapid-{2**22 + 1}-0"  # above the largest process number
    foreign_groups = [
        fake_cgroups / name for name in ("rapid-h16-run.scope", f"rapid-{2**22 + 1}-x")
    ]
    for group in (stale_group, *foreign_groups):
        group.mkdir()
    run_limited("true", memory_mb=10_000)
    assert not stale_group.exists() and all(group.exists() for group in foreign_groups)
