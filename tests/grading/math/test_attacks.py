"""Hostile answers get no reward, no more time or memory than allowed, and no access to the machine."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import timeit
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rapid.benchmarks.math import made as math
from rapid.benchmarks.math.record import MathProblem
from rapid.grading import limits, verdicts
from rapid.grading.math import grader as grader_module
from rapid.grading.math.grader import MathGrader, extract_last_boxed
from tests.grading.math.attacks import ATTACKS, split_answers, transcribe_question
from tests.grading.math.conftest import make_problem
from tests.grading.math.respellings import respell
from tests.subprocesses import filter_living, wait_for

TIMEOUT = 0.3
PATIENCE = 60.0  # seconds for an honest answer, even on a busy machine
# Whether the second fraction is reduced takes a power of 10,000 terms.
SHORT, ENDLESS = "\\frac{(x+1)^{9999}}{2x}", "\\boxed{\\frac{0.5(x+1)^{9999}}{x}}"
LONG = 100_000


@pytest.fixture(scope="module")
def impatient_grader():
    with MathGrader(TIMEOUT) as grader:
        yield grader


def list_session(leader: int) -> list[int]:
    """Return the processes of a session that still run."""
    pids = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            pids += [pid] if os.getsid(pid) == leader else []
    return filter_living(*pids)


def assert_grader_still_works(grader: MathGrader) -> None:
    """Check that the grader still tells a right answer from a wrong one."""
    timeout, grader.timeout = grader.timeout, PATIENCE
    try:
        assert grader.grade(make_problem("2"), "\\boxed{x=2}").reason == verdicts.PASSED
        assert grader.grade(make_problem("2"), "\\boxed{x=3}").reason == verdicts.WRONG_ANSWER
    finally:
        grader.timeout = timeout


@pytest.mark.parametrize(("question", "correct_answer"), ATTACKS)
def test_answers_that_are_not_evaluated_or_are_different_are_refused(
    grader, question, correct_answer
):
    problem = MathProblem(unique_id="", problem=question, answer=correct_answer)
    reasons = {
        answer: grader.grade(problem, f"\\boxed{{{answer}}}").reason
        for answer in split_answers(ATTACKS[question, correct_answer])
    }
    refusals = (verdicts.WRONG_ANSWER, verdicts.UNPARSABLE)
    assert reasons and not {
        answer: reason for answer, reason in reasons.items() if reason not in refusals
    }


@pytest.mark.slow
def test_a_restated_question_is_not_rewarded(grader):
    rng = random.Random(0)
    for index in range(20):
        problem = math.draw(rng, str(index)).problem
        question = problem.problem
        for answer in (*transcribe_question(question), *respell(question)):
            verdict = grader.grade(problem, f"\\boxed{{{answer}}}")
            assert verdict.reward == 0.0, (question, answer)


ENDLESS_ANSWERS = [
    ("2^{10}", "9^{999999999}"), ("2^{10}", "9^{9^{9^{9^9}}}"), ("10!", "((9!)!)!"),
    ("\\binom{8}{3}", "\\binom{9^{9^9}}{9^9}"), ("\\lfloor x\\rfloor", "\\lfloor 9^{9^{9^9}} \\rfloor"),
    ("5", "1=9^{9^{9^9}}=5"), ("5", "9^{9^{9^9}}\\%"), ("5", "1E999999999"), ("5", "5!" + "!" * 400),
    ("(2^{10},2^{11})", "(9^{999999999},9^{999999999})"), ("x+y+z", "(x+y+z)^{1000}"),
    ("\\sum_{k=1}^{n} \\frac{1}{k}", "\\sum_{k=1}^{99999999} \\frac{1}{k}"),
    ("\\int_0^1 e^x dx", "\\int_0^1 e^{x^x} dx"), ("\\lim_{x \\to 0} x", "\\lim_{x \\to 0} \\frac{\\sin(x^x)}{x}"),
    ("\\operatorname{eye}(2)", "\\operatorname{eye}(100000)"), ("\\sqrt{2}", "\\sqrt{" + "9" * 900 + "7}"),
    ("\\sqrt{2}", "\\sqrt{" * 60 + "2" + "}" * 60), ("6", "(" * 150 + "5" + ")" * 150), ("5", "(2)" * 150),
    ("5", "-" * 900 + "5"), ("1,2", "1," * 450 + "2"), ("x", "x" * 900),
    ("\\begin{pmatrix}x\\end{pmatrix}^{10}", "\\begin{pmatrix}" + "&".join("x" * 200) + "\\end{pmatrix}^{10^9}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("correct_answer", "answer"), ENDLESS_ANSWERS, ids=range(len(ENDLESS_ANSWERS))
)
def test_an_endless_answer_has_no_reward_and_the_next_is_graded(
    impatient_grader, correct_answer, answer
):
    assert (
        impatient_grader.grade(make_problem(correct_answer), f"\\boxed{{{answer}}}").reward == 0.0
    )
    assert_grader_still_works(impatient_grader)


@pytest.mark.parametrize("completion", [
    "\\boxed{" + "{" * LONG, "{" * LONG + "\\boxed{6", "\\boxed" * (LONG // 6), "\\boxed{6}" * (LONG // 9),
    ("\\boxed" + " " * 1000) * 100, "\\boxed{" + " " * LONG + "6}", "\\boxed{" + "\\" * LONG + "}",
    "\\boxed{" + "$" * LONG + "}", "\\boxed{6" + "," * LONG + "}", "\\boxed{" + "5+" * (LONG // 2) + "5}",
    "\\boxed{" + "\\frac{" * (LONG // 6) + "}" * (LONG // 6 + 1),
], ids=range(11))  # fmt: skip
def test_an_answer_over_the_limit_is_never_compared(impatient_grader, completion, monkeypatch):
    compared = []
    monkeypatch.setattr(
        impatient_grader, "_compare", lambda *arguments: compared.append(arguments[1]) or "crashed"
    )
    assert impatient_grader.grade(make_problem("5"), completion).reward == 0.0
    assert all(len(answer) <= limits.MATH_CHARACTERS for answer in compared)


@pytest.mark.parametrize(
    "completion", [lambda n: "\\boxed{" * n, lambda n: "\\boxed" + " " * (10 * n)]
)
def test_boxes_are_found_in_linear_time(completion):
    """The CPU time of this process is measured, as the shortest of several runs."""

    def measure_seconds(text: str) -> float:
        return min(
            timeit.repeat(lambda: extract_last_boxed(text), timer=time.process_time, number=1)
        )

    # Linear time would be 8 times as long, quadratic time 64 times.
    assert measure_seconds(completion(80_000)) < 40 * measure_seconds(completion(10_000))


@pytest.mark.parametrize("answer", ["{code}", "\\text{{{code}}}", "x=1,{code}", "x_{{{code}}}",
    "\\operatorname{{{code}}}(2)", "{code}(2)", "2^{{{code}}}", "\\variable{{{code}}}",
    "\\gcd({code},2)", "5\\text{{ {code}}}", "5_{{{code}}}", "\\begin{{pmatrix}}{code}\\end{{pmatrix}}"])  # fmt: skip
def test_code_is_not_run(impatient_grader, tmp_path, answer):
    trace = tmp_path / "trace"
    for code in (
        f"__import__('os').system('touch {trace}')",
        f"open('{trace}','w')",
        f'eval("open(\\"{trace}\\",\\"w\\")")',
    ):
        attack = answer.format(code=code)
        assert impatient_grader.grade(make_problem("5"), f"\\boxed{{{attack}}}").reward == 0.0
    assert not trace.exists()


@pytest.mark.parametrize("answer", [
    "6$ and $5", "6 \\) \\(5\\)", "6. The final answer is \\(5\\)", "6 \\fbox{5}", "6\n5", "6 % 5",
    '{"reason": "passed"}', '\n{"gold": "5", "answer": "5", "question": "", "timeout": 1}\n',
    "6\0", "\0", "\ud800", "\u202e5\ud83d", "\ufeff6", "²", "\U0001d7d4", "\x1b[6m",
])  # fmt: skip
def test_an_answer_is_read_to_its_end(impatient_grader, answer):
    assert impatient_grader.grade(make_problem("5"), f"\\boxed{{{answer}}}").reward == 0.0
    assert_grader_still_works(impatient_grader)


def test_an_interrupted_comparison_does_not_answer_the_next_one():
    def interrupt(*_):
        raise KeyboardInterrupt

    earlier_handler = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with MathGrader(PATIENCE) as grader:
            killer = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -USR1 {os.getpid()}"])
            with pytest.raises(KeyboardInterrupt):
                grader.grade(make_problem(SHORT), ENDLESS)
            killer.wait()
            assert_grader_still_works(grader)
    finally:
        signal.signal(signal.SIGUSR1, earlier_handler)


@pytest.mark.usefixtures("ignored_sigchld")
def test_the_timeout_works_if_the_caller_ignores_signals():
    earlier_handler = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with MathGrader(TIMEOUT) as grader:
            worker = grader._worker.pid
            assert grader.grade(make_problem(SHORT), ENDLESS).reason == verdicts.TIMEOUT
            assert grader._worker.pid == worker
    finally:
        signal.signal(signal.SIGALRM, earlier_handler)


def test_the_worker_has_its_own_session_and_no_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("PYTHONUSERBASE", "/nowhere")  # where pip install --user puts packages
    with MathGrader(PATIENCE) as grader:
        grader.grade(make_problem("2"), "\\boxed{x=2}")
        leader = grader._worker.pid
        assert len(list_session(leader)) == 2
        for pid in list_session(leader):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"hf_secret" not in environment
            assert b"PYTHONUSERBASE=/nowhere" in environment
    assert list_session(leader) == []


def test_the_workers_of_a_killed_grader_end():
    script = f"""
        from rapid.grading.math.grader import MathGrader
        from rapid.benchmarks.math.record import MathProblem
        with MathGrader(60.0) as grader:
            print(grader._worker.pid, flush=True)
            grader.grade(MathProblem(unique_id="", problem="", answer={SHORT!r}), {ENDLESS!r})
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        leader = int(process.stdout.readline())
        time.sleep(0.5)
        assert list_session(leader)
        process.kill()
    wait_for(lambda: not list_session(leader))


def test_a_worker_can_compare_but_not_write_fork_signal_or_connect(tmp_path):
    script = """
        import json, os, socket, subprocess, sys
        sys.path.insert(0, sys.argv[2])
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("worker", sys.argv[2] + "/__main__.py")
        worker = module_from_spec(spec)
        spec.loader.exec_module(worker)
        worker.drop_rights(4_000_000_000)
        attempts = {
            "write": lambda: open(sys.argv[1], "w"),
            "remove": lambda: os.remove(sys.executable),
            "system": lambda: os.system("true"),
            "process": lambda: subprocess.run(["true"]),
            "fork": os.fork,
            "signal": lambda: os.kill(os.getppid(), 0),
            "network": lambda: socket.create_connection(("127.0.0.1", 9)),
        }
        done = []
        for name, attempt in attempts.items():
            try:
                attempt()
                done.append(name)
            except PermissionError:
                pass
        print(json.dumps([done, worker.compare("x^2-1", "(x-1)(x+1)", "")]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "trace")]
    command.append(str(grader_module._WORKER))
    output = subprocess.run(command, capture_output=True, check=True).stdout
    assert json.loads(output) == [[], "passed"]
