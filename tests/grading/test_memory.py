"""What every grader's process is started with."""

import subprocess
import sys
from pathlib import Path

import pytest

from rapid.grading import memory


@pytest.fixture
def fake_cgroups(tmp_path, monkeypatch):
    """Folders and files as cgroup v2 has them, with the memory controller delegated to us."""
    home = tmp_path / "a.slice"
    home.mkdir()
    (home / "cgroup.subtree_control").write_text("cpu memory\n")
    membership = tmp_path / "membership"
    membership.write_text("4:memory:/v1\n0::/a.slice\n")
    monkeypatch.setattr(memory, "_MOUNT", tmp_path)
    monkeypatch.setattr(memory, "_MEMBERSHIP", membership)
    memory._find_groups_folder.cache_clear()
    yield home
    memory._find_groups_folder.cache_clear()


@pytest.fixture
def no_cgroups(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "none")
    memory._find_groups_folder.cache_clear()
    yield
    memory._find_groups_folder.cache_clear()


def run(*arguments, **options) -> str:
    command = memory.limit_memory([*arguments], **options)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


SPACE = "import resource; print(*resource.getrlimit(resource.RLIMIT_AS))"


def test_a_grader_is_the_first_to_die_where_memory_runs_out():
    assert run("cat", "/proc/self/oom_score_adj").strip() == "1000"


def test_the_command_gets_its_own_arguments():
    assert run("printf", "%s|", "a b", "", "$HOME", memory_mb=10_000) == "a b||$HOME|"


def test_the_address_space_is_limited_where_there_are_no_cgroups(no_cgroups):
    soft, hard = map(int, run(sys.executable, "-S", "-c", SPACE, memory_mb=1000).split())
    assert soft == hard
    assert 999_998_000 < soft <= 1_000_000_000


def test_a_program_that_reserves_much_keeps_its_address_space(no_cgroups):
    free = run(sys.executable, "-S", "-c", SPACE)
    options = {"memory_mb": 1000, "address_space": False}
    assert run(sys.executable, "-S", "-c", SPACE, **options) == free


def test_a_group_of_its_own_limits_a_grader_where_cgroups_are_delegated(fake_cgroups):
    free = run(sys.executable, "-S", "-c", SPACE)
    assert run(sys.executable, "-S", "-c", SPACE, memory_mb=1000) == free  # the group limits it
    [group] = [g for g in fake_cgroups.glob("rapid-*") if read(g, "memory.max") == "1000000000"]
    assert int(read(group, "cgroup.procs")) > 0
    assert read(group, "memory.swap.max") == "0"


def test_a_group_goes_with_its_command(fake_cgroups):
    command, second = (memory.limit_memory(["true"], memory_mb=size) for size in (1000, 2000))
    for group in fake_cgroups.glob("rapid-*"):
        for file in group.iterdir():  # a kernel's are no obstacle
            file.unlink()
    before = {*fake_cgroups.glob("rapid-*")}
    memory.remove_group(command)
    memory.remove_group(["sh", "-c", "exec", *command])  # twice, and within another command
    assert len(before - {*fake_cgroups.glob("rapid-*")}) == 1
    memory.remove_group(second)
    assert len(before - {*fake_cgroups.glob("rapid-*")}) == 2


def read(group: Path, name: str) -> str:
    return (group / name).read_text().strip()


def test_a_group_that_takes_no_process_is_an_error(fake_cgroups):
    command = memory.limit_memory(["true"], memory_mb=1000)
    [group] = [g for g in fake_cgroups.glob("rapid-*") if read(g, "memory.max") == "1000000000"]
    (group / "cgroup.procs").unlink(missing_ok=True)
    (group / "cgroup.procs").mkdir()
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode != 0


def test_groups_that_are_not_ours_are_not_used(fake_cgroups):
    (fake_cgroups / "cgroup.subtree_control").write_text("cpu\n")
    run("true", memory_mb=10_000)
    assert list(fake_cgroups.glob("rapid-*")) == []


def test_a_dead_process_leaves_no_group(fake_cgroups):
    stale = fake_cgroups / f"rapid-{2**22 + 1}-0"  # above the largest process number
    foreign = [fake_cgroups / name for name in ("rapid-h16-run.scope", f"rapid-{2**22 + 1}-x")]
    for group in (stale, *foreign):
        group.mkdir()
    run("true", memory_mb=10_000)
    assert not stale.exists() and all(group.exists() for group in foreign)
