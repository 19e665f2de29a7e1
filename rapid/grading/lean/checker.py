"""Checks Lean proofs with two processes: an author elaborates a proof, and a judge decides.

A proof is hostile text, and elaborating it may run code in it. So nothing that the author says is
trusted; it only exports the elaborated proof as data. The judge never sees the text of a proof. It
elaborates the benchmark's statement, reads the export, and has its own kernel check that the export
proves the statement. Both processes get only the environment variables that they need. Each answer
repeats a secret number of the request, which a proof cannot guess.
"""

import contextlib
import threading
import time
from typing import Self

from rapid.grading import limits, verdicts
from rapid.grading.grader import BadProblem, GraderDied
from rapid.grading.lean.install import Backend, LeanUnavailable, ensure_lean
from rapid.grading.lean.process import (
    ANSWERS,
    ELABORATED,
    STATED,
    Answer,
    LeanProcess,
    ProcessDied,
)
from rapid.grading.lean.standby import borrow
from rapid.grading.verdicts import Verdict

ROLES = tuple(ANSWERS)  # author, judge
# What the processes do, in messages, by role.
TASKS = {"author": "reads proofs (the author)", "judge": "checks proofs (the judge)"}


class BadStatement(BadProblem):
    """Lean does not accept the problem's statement, or does not elaborate it.

    The proof is not the cause.
    """


class LeanChecker:
    """Checks proofs one after another. Safe to share between threads.

    Reasons of its verdicts, besides passed, timeout and crashed:

    - wrong_answer: Lean reports an error.
    - unparsable: statement and proof are not exactly one theorem.
    - forbidden: `sorry`, an axiom, a word that makes Lean run code of the proof, a term that the
      kernel refuses, a text that is too long or has a NUL character.
    - memory: the proof term is too large.

    Args:
        timeout: wall-clock seconds per proof.
        header: the code before every statement: imports, `open`, `set_option`. The WebAssembly Lean
            has only the core library.
        backend: the Lean to use; None for the one that `ensure_lean()` returns.
        unsafe: whether a native Lean may run without a sandbox (docs/security.md).
    """

    def __init__(
        self, timeout: float, header: str = "", backend: Backend | None = None, unsafe: bool = False
    ):
        if not timeout > 0:
            raise ValueError(f"timeout must be greater than 0, not {timeout}")
        self.timeout = timeout
        self.header = header
        self.backend = backend
        self.unsafe = unsafe
        self._processes: dict[str, LeanProcess] = {}  # by role
        # Names and statements that both processes, or their predecessors, have elaborated.
        self._elaborated_statements: set[tuple[str, str]] = set()
        # Why names and statements were not elaborated.
        self._failures: dict[tuple[str, str], str] = {}
        self._started_roles: set[str] = set()  # the roles in which a process has once been ready
        self._lock = threading.Lock()
        self._is_stopping = False

    def __enter__(self) -> Self:
        """Start Lean, and return without waiting until it is ready. Raises LeanUnavailable."""
        with self._lock:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ready(self) -> float:
        """Wait until the header is imported. Return the seconds from Lean's start until then.

        Raises:
            LeanUnavailable: Lean does not start, or does not accept the header.
            GraderDied: Lean is killed from outside again and again, or does not start again.
        """
        with self._lock:
            return max(self._get_ready_process(role).seconds for role in ROLES)

    @property
    def answered(self) -> int:
        """Return how many proofs the processes had dealt with for earlier jobs.

        The fork server keeps warm processes, and lends them to one job after another (`standby`).
        The author counts the proofs that it elaborated, and the judge those that it passed. The
        smaller number is returned; it is 0 if a process is new.
        """
        return min(process.answered for process in self._processes.values())

    def check(self, name: str, statement: str, proof: str, timeout: float | None = None) -> Verdict:
        """Check `proof` as the continuation of `statement`, which ends in `:=` or `:= by`.

        The two texts are joined, with a line break if there is no space between them.

        Args:
            name: the theorem's name, with its namespace if `statement` opens one.
            statement: the benchmark's statement.
            proof: the proof of a completion.
            timeout: seconds for this proof; None for the timeout of the checker.

        Raises:
            BadStatement: Lean does not accept the statement, or does not elaborate it in time.
            LeanUnavailable: Lean does not start.
            GraderDied: a process was killed during this proof, or does not start again. The next
                proof gets a new process.
        """
        proof = proof.replace("\r\n", "\n").replace("\r", "\n")
        try:
            size = len(proof.encode())
        except UnicodeEncodeError:  # half a surrogate pair, which is not text
            return verdicts.build_verdict(verdicts.UNPARSABLE)
        if "\0" in proof or size > limits.LEAN_PROOF_BYTES:
            return verdicts.build_verdict(verdicts.FORBIDDEN)
        if not (statement[-1:].isspace() or proof[:1].isspace()):
            statement += "\n"
        with self._lock:
            return verdicts.build_verdict(
                self._check(name, statement, proof, timeout or self.timeout)
            )

    def elaborate_statement(self, name: str, statement: str) -> None:
        """Elaborate a statement in advance, so that the check of its first proof is faster.

        Raises:
            BadStatement: Lean does not accept the statement, or does not elaborate it within the
                checker's timeout.
            LeanUnavailable: Lean does not start.
            GraderDied: a process was killed, or does not start again.
        """
        with self._lock:
            self._elaborate_statement({"name": name, "statement": statement})

    def stop(self) -> None:
        """End the processes. A borrowed process goes back to its owner.

        If another thread checks a proof, GraderDied is raised there.
        """
        self._is_stopping = True
        self._end_own_processes()  # without the lock: another thread holds it during a check
        with self._lock:
            self._is_stopping = False
            self._end_own_processes()
            self._processes.clear()

    def _end_own_processes(self) -> None:
        for process in [*self._processes.values()]:
            if not process.is_borrowed:
                process.end()

    def _check(self, name: str, statement: str, proof: str, timeout: float) -> str:
        goal = {"name": name, "statement": statement}
        self._elaborate_statement(goal)
        for role in ROLES:
            self._get_ready_process(role)
        deadline = time.monotonic() + timeout
        # First, the author elaborates the proof without checks by its own kernel, to save time: the
        # judge's kernel checks the proof anyway. If the judge refuses the proof, the author
        # elaborates it again with these checks. Then a tactic such as `first` can go on with its
        # next alternative when the kernel refuses one, and a mistaken proof gets the reason
        # wrong_answer from the author. (A native Lean always makes the checks.)
        for is_checked in (False, True):
            request = goal | {"proof": proof, "checked": is_checked}
            answer, export = self._ask("author", request, deadline - time.monotonic())
            if answer.why == ELABORATED:
                answer, _ = self._ask("judge", goal, deadline - time.monotonic(), export)
            # Without an export, the author itself has refused the proof, and its answer is final.
            if answer.why != verdicts.FORBIDDEN or not export:
                break
        return answer.why

    def _elaborate_statement(self, goal: dict[str, str]) -> None:
        """Have both processes elaborate a statement, with `sorry` for its proof.

        The judge decides whether the statement is accepted. The author's answer does not matter,
        but the author must finish: otherwise it would fail at every proof of this statement.
        """
        name, statement = goal.values()
        if (name, statement) in self._elaborated_statements:
            return
        if failure := self._failures.get((name, statement)):
            raise BadStatement(failure)
        answer = self._ask_about_statement("judge", goal, goal)
        if answer.why != STATED:
            messages = [" ".join(message.split()) for message in answer.messages]
            reason = "; ".join(messages) or answer.why
            raise BadStatement(
                f"the statement of {name} is not accepted by {self.backend}: {reason}"
            )
        request = goal | {"proof": " sorry", "checked": False}
        self._ask_about_statement("author", goal, request)
        self._elaborated_statements.add((name, statement))

    def _ask_about_statement(self, role: str, goal: dict[str, str], request: dict) -> Answer:
        """Have a process elaborate a statement, and return its answer.

        If it does not finish, a new process, which has seen no proof, tries again. If that one does
        not finish either, the statement is the cause. No later proof of it is then tried, because
        each would take twice the timeout.
        """
        for _ in range(2):
            answer, _ = self._ask(role, request, self.timeout)
            if answer.why not in (verdicts.TIMEOUT, verdicts.MEMORY, verdicts.CRASHED):
                return answer
            if answer.why == verdicts.MEMORY:  # in the other cases `_ask` has started a new process
                self._restart(role)
        name, statement = goal.values()
        failure = (
            f"the statement of {name} was not elaborated in two attempts of at most "
            f"{self.timeout:g} s by {self._name_process(role)}: {answer.why}"
        )
        self._failures[name, statement] = failure
        raise BadStatement(failure)

    def _ask(
        self, role: str, request: dict, timeout: float, export: bytes | None = None
    ) -> tuple[Answer, bytes]:
        """Send a request to a process; return the answer and the export that follows it.

        If the process ends by itself, the request is repeated once with a new process. If that
        process ends too, the proof is the cause, and the answer is `crashed`.
        """
        for is_last in (False, True):
            try:
                process = self._get_ready_process(role)
                answer, answer_export = process.request(request, timeout, export)
            except TimeoutError:
                self._restart(role)
                return Answer(why=verdicts.TIMEOUT), b""
            except ProcessDied as death:
                self._restart(role)
                if death.was_killed:
                    message = f"{self._name_process(role)} died: {death}"
                    raise GraderDied(message) from None
                if is_last:
                    return Answer(why=verdicts.CRASHED), b""
            except BaseException:  # a late answer must not reach the next caller
                self._stop(role)
                raise
            else:
                break
        if answer.megabytes > limits.LEAN_REPLACE_MB:
            self._restart(role)
        return answer, answer_export

    def _get_ready_process(self, role: str) -> LeanProcess:
        """Return a process that is ready. A process that has died is replaced.

        Raises:
            LeanUnavailable: Lean does not start.
            GraderDied: Lean is killed from outside again and again, or has started before but does
                not start now.
        """
        try:
            process = self._wait_for_process(role)
        except LeanUnavailable as error:
            if role in self._started_roles:
                raise GraderDied(
                    f"{self._name_process(role)} does not start again: {error}"
                ) from error
            raise
        self._started_roles.add(role)
        return process

    def _wait_for_process(self, role: str) -> LeanProcess:
        for _ in range(limits.LEAN_STARTS):
            self._start()
            process = self._processes[role]
            try:
                process.wait_ready()
            except ProcessDied:
                pass
            except BaseException:
                self._stop(role)
                raise
            if process.is_alive:
                return process
            self._stop(role)
        raise GraderDied(
            f"{self._name_process(role)} died {limits.LEAN_STARTS} times before it could answer"
        )

    def _name_process(self, role: str) -> str:
        return f"the process of {self.backend} that {TASKS[role]}"

    def _start(self) -> None:
        """Borrow or start the processes that are missing."""
        if self._is_stopping:
            raise GraderDied(f"{self.backend or 'Lean'} was stopped")
        self.backend = self.backend or ensure_lean()
        for role in ROLES:
            if role not in self._processes:
                process = borrow(role, self.backend, self.header)
                self._processes[role] = process or LeanProcess(
                    self.backend, self.header, role, self.unsafe
                )

    def _restart(self, role: str) -> None:
        self._stop(role)
        with contextlib.suppress(LeanUnavailable):  # the next request tries again
            self._start()

    def _stop(self, role: str) -> None:
        if process := self._processes.pop(role, None):
            process.end()
