"""Reward functions grade in every process and thread, and their graders end with the process."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from rapid import rewards
from rapid.grading.grader import GradersClosed
from rapid.grading.pool import GraderPool
from rapid.grading.shared import SharedGraders
from rapid.grading.worker import Worker
from rapid.rewards import CodeReward, LeanReward, MathReward, close, math_reward
from tests.conftest import ROOT
from tests.grading.lean import stand_in
from tests.subprocesses import filter_living, wait_for

ENDLESS = {  # reward functions, completions that take very long to grade, and the columns of their rows
    "math": (
        MathReward,
        r"\boxed{\frac{0.5(x+1)^{9999}}{x}}",
        {"answer": [r"\frac{(x+1)^{9999}}{2x}"]},
    ),
    "code": (CodeReward, "def f(x):\n    while True: pass", {"tests": [["assert f(1) == 2"]]}),
    "lean": (LeanReward, stand_in.ENDLESS, {"theorem": [stand_in.STATEMENT]}),
}


def test_a_reward_is_pickled_with_its_settings():
    reward = CodeReward(timeout=5, workers=3)
    copied = pickle.loads(pickle.dumps(reward))
    assert (copied.timeout, copied.workers, copied.__name__) == (5, 3, "code_reward")
    assert pickle.loads(pickle.dumps(math_reward))([""], [r"\boxed{1}"], answer=["1"]) == [1.0]


def test_the_default_number_of_workers_is_the_process_s_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(24))
    assert rewards.count_cores() == 24
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert rewards.count_cores() == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "48")
    assert rewards.count_cores() == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "")
    assert rewards.count_cores() == 24


@pytest.mark.parametrize(
    ("variables", "bound_cores", "share"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, 64, 8),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, 1, 1),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2)", "SLURM_CPUS_ON_NODE": "16"}, 16, 2),
        ({"SLURM_STEP_TASKS_PER_NODE": "8", "SLURM_CPUS_ON_NODE": "64"}, 8, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_CPUS_ON_NODE": "64"}, 8, 8),
    ],
)
def test_the_share_of_the_cores_takes_mpirun_and_srun_into_account(
    monkeypatch, variables, bound_cores, share
):
    """They may have bound a process to its share already."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(bound_cores))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rewards.count_cores() == share


def grade_sums(numbers: range) -> list[float | None]:
    boxes = [f"\\boxed{{1 + {n}}}" for n in numbers]
    return math_reward([""] * len(boxes), boxes, answer=["1+2"] * len(boxes))


def test_forked_and_spawned_processes_grade_at_the_same_time():
    expected = [float(n == 2) for n in range(20)]
    assert grade_sums(range(20)) == expected
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            results = pool.map_async(grade_sums, [range(20)] * 4, chunksize=1)
            assert grade_sums(range(20)) == expected
            assert results.get(300) == [expected] * 4


def test_graders_outlive_the_thread_that_started_them():
    """Linux can kill a process when the thread ends that started it (PR_SET_PDEATHSIG)."""
    reward = CodeReward(timeout=6, workers=1)
    pids = []
    for number in range(2):
        with ThreadPoolExecutor(1) as thread:
            program = f"def f(x): return 2 * x  # {number}"
            future = thread.submit(reward, [""], [program], tests=[["assert f(1) == 2"]])
            assert future.result(60) == [1.0]
        pids.append({worker.pid for worker in Worker.started if worker.is_alive})
    assert pids[0] and pids[0] == pids[1]


def test_threads_grade_at_the_same_time():
    reward = MathReward(timeout=6, workers=2)
    with ThreadPoolExecutor(20) as threads:
        boxes = [rf"\boxed{{1/{n}}}" for n in range(1, 60)]
        futures = [threads.submit(reward, [""], [box], answer=["0.5"]) for box in boxes]
        assert [future.result(60) for future in futures].count([1.0]) == 1


@pytest.mark.parametrize("kind", ["math", "code", pytest.param("lean", marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [1, 3])
def test_close_ends_calls_in_other_threads(kind, count):
    reward_class, completion, columns = ENDLESS[kind]
    reward = reward_class(timeout=300, workers=2)
    columns = {name: values * count for name, values in columns.items()}
    arguments = [""] * count, [completion + " " * n for n in range(count)]
    reward([""], [""], **{name: values[:1] for name, values in columns.items()})  # starts graders
    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(reward, *arguments, **columns)
        time.sleep(1)
        close()
        with pytest.raises(GradersClosed, match="closed while a completion was graded"):
            call.result(20)
    assert grade_sums(range(3)) == [0.0, 0.0, 1.0]


def test_graders_that_were_closed_before_a_batch_are_an_error():
    graders = SharedGraders(GraderPool("none", nullcontext, 2))
    graders.close()
    with pytest.raises(GradersClosed, match="before a batch was graded"):
        graders.grade([None, None], ["", ""])


def test_a_call_after_ctrl_c_does_not_wait_for_the_interrupted_one():
    reward = CodeReward(timeout=300, workers=1)
    _, endless, columns = ENDLESS["code"]
    columns = {name: values * 2 for name, values in columns.items()}
    reward(["", ""], ["", ""], **columns)
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        reward(["", ""], [endless, f"{endless} "], **columns)
    with ThreadPoolExecutor(1) as thread:
        programs = ["def f(x): return 2", "def f(x): return 3"]
        assert thread.submit(reward, ["", ""], programs, **columns).result(60) == [1.0, 0.0]


SCRIPT = """
import json, os, psutil, signal, sys, threading, time
from rapid.rewards import CodeReward, code_reward, lean_reward, math_reward

def grade(number):
    values = math_reward([""], [rf"\\boxed{{1/{number}+1}}"], answer=["1"])
    values += code_reward([""], [f"def f(x): return {number} * x"], tests=[["assert f(1) == 2"]])
    if WITH_LEAN:
        values += lean_reward([""], [f"  exact Nat.lt_of_sub_eq_succ (by rfl : {number} = 3)"],
                              theorem=["theorem a : 1 < 4 := by"])
    return values

def pids():
    return sorted(child.pid for child in psutil.Process().children(recursive=True))

def grade_endlessly():
    programs = [f"def f(x):\\n    while True: {n}" for n in range(8)]
    CodeReward(timeout=200)([""] * 8, programs, tests=[["assert f(1) == 2"]] * 8)

def announce():
    print(json.dumps([os.getpid(), first, pids()]), flush=True)

first, started = grade(2), pids()
"""
# How the process ends, and the code that ends it.
ENDINGS = {
    "at its end": "",
    "by an error": "sys.excepthook = lambda *_: None\nraise ValueError",
    "by SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "by SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "by close, to start again": (
        "from rapid.rewards import close\nclose()\nassert not pids()\n"
        "assert grade(3) and pids() and not {*pids()} & {*started}"
    ),
    "by Ctrl-C while it grades": """
sys.excepthook = lambda *_: None
threading.Timer(2, lambda: (announce(), os.kill(os.getpid(), signal.SIGINT))).start()
grade_endlessly()
""",
    "while another thread grades": """
threading.Thread(target=grade_endlessly, daemon=True).start()
time.sleep(2)
announce()
""",
    "by SIGKILL while it grades": """
threading.Thread(target=grade_endlessly, daemon=True).start()
time.sleep(2)
announce()
os.kill(os.getpid(), signal.SIGKILL)
""",
    "after a fork": """
child = os.fork()
if child == 0:
    first_again = grade(2)
    child_pids = {*pids()}
    assert first_again == first and child_pids and not child_pids & {*started}
    assert grade(3)[1] == 0.0 and child_pids <= {*pids()}
    sys.exit(0)  # the exit handlers must end only the child's own processes
assert os.waitpid(child, 0)[1] == 0
assert grade(3)[1] == 0.0 and {*started} <= {*pids()}
""",
    "by SIGKILL while its fork lives": """
if os.fork() == 0:
    import time
    os.close(1), os.close(2)
    time.sleep(60)  # has none of the parent's processes, and keeps none of them alive
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("with_lean", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_graders_end_with_their_process(ending, with_lean):
    script = SCRIPT.replace("WITH_LEAN", str(with_lean))
    script += (
        ENDINGS[ending] if "announce()" in ENDINGS[ending] else f"announce()\n{ENDINGS[ending]}"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    output, _ = run.communicate(timeout=150)
    pid, values, started = json.loads(output)
    assert values[:2] == [0.0, 1.0] and len(started) >= 2
    signals = [name for name in ("SIGKILL", "SIGTERM", "SIGINT") if name in ENDINGS[ending]]
    status = -signal.Signals[signals[0]] if signals else int(ending == "by an error")
    assert run.returncode == status
    wait_for(lambda: not filter_living(pid, *started), 10)
