"""The checker's interface, with the WebAssembly Lean and with a stand-in for a native one."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from rapid.grading import limits, verdicts
from rapid.grading.grader import GraderDied
from rapid.grading.lean import BadStatement, LeanChecker, LeanUnavailable, ensure_lean
from rapid.grading.lean import process as lean_process
from tests.grading.lean.stand_in import ENDLESS, RIGHT, STATEMENT, VERDICTS, WRONG, make_stand_in
from tests.subprocesses import (
    assert_gone,
    filter_living,
    find_processes_naming,
    python,
    start_command,
    wait_for,
)


@pytest.fixture(scope="module", autouse=True)
def python_as_library():
    """Let the sandbox contain Python in place of Lean's library: the stand-in is a Python program."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("LEAN_PATH", sys.base_prefix)
        yield


@pytest.fixture(scope="module", params=["WebAssembly", "stand-in"])
def backend(request, tmp_path_factory):
    if request.param == "stand-in":
        if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed")
        return make_stand_in(tmp_path_factory.mktemp("bin"))
    installed = ensure_lean()
    if installed.kind == "native":
        pytest.skip("a native Lean comes first on this machine")
    return installed


@pytest.fixture(scope="module")
def lean(backend):
    with LeanChecker(timeout=20, backend=backend) as checker:
        yield checker


@pytest.fixture
def without_sandbox(monkeypatch):
    """Hide bubblewrap, so that with `unsafe` the stand-in can do what the sandbox refuses."""
    find_program = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name: None if name == "bwrap" else find_program(name)
    )


@pytest.fixture
def fake_checker(tmp_path, without_sandbox):
    """A checker with the stand-in and without a sandbox, for behaviour that a real Lean does not have."""
    with LeanChecker(timeout=1, backend=make_stand_in(tmp_path), unsafe=True) as checker:
        yield checker


def author_pid(checker: LeanChecker) -> int:
    return checker._processes["author"].pid


def find_checkers(folder: Path) -> list[int]:
    return [pid for pid, line in find_processes_naming(folder).items() if "Checker.lean" in line]


class TestBothBackends:
    @pytest.mark.parametrize("proof", VERDICTS)
    def test_both_backends_give_the_same_verdicts(self, lean, proof):
        verdict = lean.check("p1", STATEMENT, proof)
        assert verdict.reason == VERDICTS[proof]
        assert verdict.reward == (VERDICTS[proof] == verdicts.PASSED)

    def test_lines_may_end_in_cr_lf(self, lean):
        proof = " by\r\n  constructor\r\n  · rfl\r\n  · trivial"
        assert lean.check("p1", STATEMENT, proof).reason == verdicts.PASSED

    @pytest.mark.parametrize("proof", ["\0", " " * 8193, "𝒮" * 2049, "\ud800"])
    def test_an_invalid_text_of_a_proof_does_not_reach_lean(self, lean, monkeypatch, proof):
        monkeypatch.setattr(lean, "_ask", None)
        reason = verdicts.UNPARSABLE if proof == "\ud800" else verdicts.FORBIDDEN
        assert lean.check("p1", STATEMENT, proof).reason == reason

    def test_a_bad_statement_is_an_error_that_names_the_lean(self, lean):
        with pytest.raises(
            BadStatement, match=r"the statement of p1 is not accepted by Lean 4.*NoSuchType"
        ):
            lean.check("p1", "theorem p1 (x : NoSuchType.X) : True :=", " trivial")

    @pytest.mark.parametrize("role", ["judge", "author"])
    def test_a_statement_that_times_out_twice_is_a_bad_one(self, fake_checker, role, monkeypatch):
        fake_checker.timeout = 0.5
        message = (
            rf"p1 was not elaborated in two attempts of at most 0.5 s .*\(the {role}\): timeout"
        )
        for _ in range(2):
            with pytest.raises(BadStatement, match=message):
                fake_checker.check("p1", f"{STATEMENT} -- {role} hangs\n", RIGHT)
            monkeypatch.setattr(fake_checker, "_ask", None)  # Lean is not asked again

    def test_a_header_that_needs_mathlib_is_reported_with_advice(self, backend):
        checker = LeanChecker(timeout=3, header="import Mathlib\n", backend=backend)
        with checker, pytest.raises(LeanUnavailable) as error:
            checker.check("p1", STATEMENT, RIGHT)
        assert "imports Mathlib: " in str(error.value)
        assert "unknown module prefix 'Mathlib'" in str(error.value)
        assert 'lake --dir="$PWD" env bash' in str(error.value)

    def test_an_endless_proof_times_out_and_the_next_proof_is_judged(self, lean):
        lean.wait_ready()
        earlier_pid, start = author_pid(lean), time.monotonic()
        assert lean.check("p1", STATEMENT, ENDLESS, 2).reason == verdicts.TIMEOUT
        assert time.monotonic() - start >= 2
        assert not filter_living(earlier_pid)
        lean.wait_ready()
        assert lean.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED
        assert lean.check("p1", STATEMENT, WRONG).reward == 0.0

    def test_a_process_that_was_killed_while_idle_is_replaced(self, lean):
        for role in ("author", "judge"):
            lean.wait_ready()
            process = lean._processes[role]
            os.kill(process.pid, signal.SIGKILL)
            wait_for(lambda process=process: not process.is_alive)  # its threads end one by one
            assert lean.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED

    def test_a_process_that_is_killed_during_a_proof_is_no_verdict(self, lean):
        assert lean.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED
        threading.Timer(0.5, os.kill, (author_pid(lean), signal.SIGKILL)).start()
        with pytest.raises(GraderDied, match=r"\(the author\) died: exit status"):
            lean.check("p1", STATEMENT, ENDLESS)
        assert lean.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED

    def test_threads_share_a_checker(self, lean):
        with ThreadPoolExecutor(8) as threads:
            graded = list(threads.map(partial(lean.check, "p1", STATEMENT), [RIGHT, WRONG] * 4))
        assert [verdict.reward for verdict in graded] == [1.0, 0.0] * 4

    def test_an_exception_in_the_caller_ends_the_process(self, backend):
        with pytest.raises(KeyError), LeanChecker(timeout=3, backend=backend) as checker:
            process = author_pid(checker)
            raise KeyError
        assert not filter_living(process)
        checker.stop()  # a second time has no effect

    @pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "sys.exit()"])
    def test_the_process_ends_with_its_owner_in_the_middle_of_a_proof(self, backend, ending):
        script = f"""
import os, sys, threading, time
from pathlib import Path
from rapid.grading.lean import LeanChecker
from rapid.grading.lean.install import Backend
backend = Backend({backend.kind!r}, {backend.version!r}, Path({str(backend.folder)!r}))
checker = LeanChecker(timeout=60, backend=backend)
checker.wait_ready()
proof = ("p1", {STATEMENT!r}, {ENDLESS!r})
threading.Thread(target=checker.check, args=proof, daemon=True).start()
time.sleep(0.5)
print(*(process.pid for process in checker._processes.values()), flush=True)
{ending}
"""
        ended = python("-c", script, status=None)
        author, judge = map(int, ended.stdout.split())
        assert_gone(author, judge)


@pytest.fixture
def requests_by_role(fake_checker, monkeypatch):
    """The requests to author and judge, after both have elaborated the statement."""
    fake_checker.timeout = 60
    fake_checker.elaborate_statement("p1", STATEMENT)
    requests_by_role = {"author": [], "judge": []}
    for role, process in fake_checker._processes.items():

        def write(message, *export, requests=requests_by_role[role], write=process._write):
            requests.append(message)
            write(message, *export)

        monkeypatch.setattr(process, "_write", write)
    return requests_by_role


class TestForgery:
    """A proof that controls Lean's output gains no reward, and does not break the checker."""

    def test_forged_lines_are_ignored(self, fake_checker):
        fake_checker.timeout = 10
        assert fake_checker.check("p1", STATEMENT, "forge").reason == verdicts.WRONG_ANSWER
        assert fake_checker.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED

    def test_the_judge_checks_an_export_whatever_the_author_says(self, fake_checker):
        assert fake_checker.check("p1", STATEMENT, "lie").reason == verdicts.FORBIDDEN
        assert fake_checker.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED

    def test_ids_of_requests_are_long_and_unique(self, fake_checker, requests_by_role):
        for _ in range(20):
            fake_checker.check("p1", STATEMENT, RIGHT)
        ids = [request["id"] for requests in requests_by_role.values() for request in requests]
        assert len(ids) == len(set(ids)) == 40
        assert min(map(len, ids)) >= 32

    @pytest.mark.parametrize(
        ("proof", "reason"),
        [
            ("flood", verdicts.TIMEOUT),
            ("endless line", verdicts.CRASHED),
            ("die", verdicts.CRASHED),  # with status 0
            ("die as if killed", verdicts.CRASHED),
            ("close input and output", verdicts.CRASHED),
            ("close output", verdicts.TIMEOUT),  # its input is the same socket
            ("stop reading", verdicts.WRONG_ANSWER),
        ],
    )
    def test_a_lean_that_breaks_the_protocol_is_replaced(
        self, fake_checker, monkeypatch, proof, reason
    ):
        monkeypatch.setattr(limits, "LEAN_LINE_BYTES", 1 << 18)
        fake_checker.timeout = 1 if reason == verdicts.TIMEOUT else 60
        assert fake_checker.check("p1", STATEMENT, proof).reason == reason
        assert fake_checker.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED


def test_a_statement_is_elaborated_once(fake_checker, requests_by_role):
    for _ in range(3):
        assert fake_checker.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED
    assert ["bytes" in request for request in requests_by_role["judge"]] == [True] * 3


def test_author_and_judge_share_the_time_of_a_proof(fake_checker, monkeypatch):
    fake_checker.timeout, timeouts = 60, []
    fake_checker.elaborate_statement("p1", STATEMENT)
    for process in fake_checker._processes.values():

        def request(content, timeout, *export, request=process.request):
            timeouts.append(timeout)
            return request(content, timeout, *export)

        monkeypatch.setattr(process, "request", request)
    for timeout in (None, 30):
        assert fake_checker.check("p1", STATEMENT, RIGHT, timeout).reason == verdicts.PASSED
        author, judge = timeouts
        assert (timeout or 60) >= author > judge > 0
        timeouts.clear()


def test_statement_and_proof_are_joined_with_space_between(fake_checker, requests_by_role):
    longest = "x" + " " * 8191
    assert fake_checker.check("p1", STATEMENT, longest).reason == verdicts.WRONG_ANSWER
    for statement, proof in ((STATEMENT, " x"), (f"{STATEMENT} ", "x"), (f"{STATEMENT} ", " x")):
        fake_checker.check("p1", statement, proof)
    proofs = [request for request in requests_by_role["author"] if request["proof"] != " sorry"]
    ends = [request["statement"].removeprefix(STATEMENT) for request in proofs]
    assert ends == ["\n", "", " ", " "]


def test_only_a_proof_that_the_judge_refused_is_checked_again(fake_checker, requests_by_role):
    """An author may leave the kernel's check to the judge once."""
    # With a line break, as `check` adds it for a proof that begins without a space.
    fake_checker.elaborate_statement("p1", f"{STATEMENT}\n")
    checked_flags = {}
    for proof in (RIGHT, WRONG, "lie"):
        requests_by_role["author"].clear()
        fake_checker.check("p1", STATEMENT, proof)
        checked_flags[proof] = [request["checked"] for request in requests_by_role["author"]]
    assert checked_flags == {RIGHT: [False], WRONG: [False], "lie": [False, True]}


@pytest.mark.usefixtures("without_sandbox")
class TestStart:
    def test_a_lean_that_dies_is_unavailable(self, tmp_path):
        checker = LeanChecker(
            timeout=3, header="die\n", backend=make_stand_in(tmp_path), unsafe=True
        )
        with checker, pytest.raises(LeanUnavailable, match=r"exit status 3.*lean --run"):
            checker.wait_ready()

    def test_a_lean_that_never_gets_ready_is_unavailable(self, tmp_path, monkeypatch):
        monkeypatch.setattr(limits, "LEAN_START_SECONDS", 0.0)
        with LeanChecker(timeout=3, backend=make_stand_in(tmp_path), unsafe=True) as checker:
            with pytest.raises(LeanUnavailable, match="too slow"):
                checker.wait_ready()
            assert set(checker._processes) == {"judge"}

    def test_a_lean_that_does_not_start_again_is_no_verdict(self, fake_checker, monkeypatch):
        def fail(*_):
            raise LeanUnavailable("the sandbox was too slow")

        with monkeypatch.context() as patch:
            patch.setattr(lean_process, "plan_launch", fail)
            assert fake_checker.check("p1", STATEMENT, "hang").reason == verdicts.TIMEOUT
            with pytest.raises(GraderDied, match=r"does not start again: the sandbox was too slow"):
                fake_checker.check("p1", STATEMENT, RIGHT)
        assert fake_checker.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED

    def test_starting_lean_takes_none_of_the_time_of_a_proof(self, fake_checker):
        fake_checker.timeout = 0.5
        fake_checker.stop()
        assert fake_checker.check("p1", STATEMENT, RIGHT).reason == verdicts.PASSED


def test_processes_that_a_proof_started_end_with_it(fake_checker, tmp_path):
    assert fake_checker.check("p1", STATEMENT, "leave a child").reason == verdicts.TIMEOUT
    assert_gone(
        *(pid for pid, line in find_processes_naming(tmp_path).items() if "time.sleep" in line)
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_command_leaves_no_process_and_no_file(tmp_path, ending):
    """The command is `rapid grade` on hundreds of proofs that hang."""
    make_stand_in(tmp_path)
    problems, completions = tmp_path / "problems.jsonl", tmp_path / "completions.jsonl"
    problems.write_text(json.dumps({"name": "p1", "formal_statement": f"{STATEMENT} by"}))
    completions.write_text(
        "".join(f'{{"id": "p1", "completion": ":= by hang -- {n}"}}\n' for n in range(200))
    )
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "rapid", "grade", "--benchmark", "minif2f"]
    command += ["--problems", str(problems), "--completions", str(completions)]
    command += ["--timeout", "2", "--workers", "2", "--unsafe-lean"]
    variables = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    process = start_command(command, env=os.environ | variables)
    wait_for(lambda: len(find_checkers(tmp_path)) > 1)
    started_pids = find_checkers(tmp_path)
    process.send_signal(ending)
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert output == ""
    assert_gone(*started_pids)
    wait_for(lambda: not find_checkers(tmp_path))  # for those that were just starting
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_timeout_of_zero_is_refused():
    with pytest.raises(ValueError, match="must be greater than 0"):
        LeanChecker(timeout=0)
