"""Checks Lean proofs with two processes: an author that elaborates them, and a judge that decides.

A proof is hostile text, and elaborating it may run its code. The author therefore only exports the
elaborated proof as data, and nothing that it says is believed. The judge never sees the text: it
elaborates the benchmark's statement, reads the export and has its kernel check it. Both have a
minimal environment. Their answers carry a secret number that a proof cannot guess.
"""

import threading
import time
from typing import Self

from rapid.grading import limits, verdicts
from rapid.grading.grader import BadProblem, GraderDied
from rapid.grading.lean.install import Backend, ensure_lean
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


class BadStatement(BadProblem):
    """Lean does not accept the statement to be proved: the problem is at fault, not the proof."""


class LeanChecker:
    """Checks proofs one after another. Safe to share between threads.

    WRONG_ANSWER: Lean reports an error. UNPARSABLE: not one theorem up to the end of the text.
    FORBIDDEN: `sorry`, an axiom, what the kernel refuses, an oversized text or one with NUL.
    MEMORY: an oversized proof term.

    Args:
        timeout: seconds of wall-clock time a proof.
        header: what stands before every statement: imports, `open`, `set_option`. The WebAssembly
            Lean has the core library only.
        backend: the Lean to use; that of `ensure_lean()` if None.
        unsafe: let a native Lean run without walls where there are none (docs/security.md).
    """

    def __init__(
        self, timeout: float, header: str = "", backend: Backend | None = None, unsafe: bool = False
    ):
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}; allowed: greater than 0")
        self.timeout = timeout
        self.header = header
        self.backend = backend
        self.unsafe = unsafe
        self._processes: dict[str, LeanProcess] = {}  # by role
        self._stated: set[tuple[str, str]] = set()  # statements that both have elaborated
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start Lean, or raise LeanUnavailable, and return while it gets ready."""
        with self._turn:
            self._start()
        return self

    def wait_ready(self) -> float:
        """Wait until the header is imported. Return the seconds since Lean was started.

        Raises:
            LeanUnavailable: Lean does not start, or does not accept the header.
            GraderDied: something outside keeps ending it.
        """
        with self._turn:
            return max(self._ready(role).seconds for role in ANSWERS)

    @property
    def answered(self) -> int:
        """Return how many proofs both processes had seen when they got ready."""
        return min(process.answered for process in self._processes.values())

    def check(self, name: str, statement: str, proof: str, timeout: float | None = None) -> Verdict:
        """Judge `proof` as the continuation of `statement`, which ends in `:=` or `:= by`.

        The two are joined as they are; where no space is between them, by a line break.

        Args:
            name: that of the theorem, as Lean knows it after `statement`.
            timeout: seconds for this proof; None for those of every proof.

        Raises:
            BadStatement: Lean does not accept the statement.
            LeanUnavailable: Lean does not start.
            GraderDied: a process died at this proof; the next proof gets another one.
        """
        proof = proof.replace("\r\n", "\n").replace("\r", "\n")
        try:
            size = len(proof.encode())
        except UnicodeEncodeError:  # half a surrogate pair: no text at all
            return verdicts.verdict(verdicts.UNPARSABLE)
        if "\0" in proof or size > limits.LEAN_PROOF_BYTES:
            return verdicts.verdict(verdicts.FORBIDDEN)
        if not (statement[-1:].isspace() or proof[:1].isspace()):
            statement += "\n"
        with self._turn:
            return verdicts.verdict(self._check(name, statement, proof, timeout or self.timeout))

    def state(self, name: str, statement: str) -> None:
        """Have a statement elaborated, for which its first proof would wait otherwise.

        Raises:
            BadStatement: Lean does not accept it.
            LeanUnavailable: Lean does not start.
            GraderDied: a process died.
        """
        with self._turn:
            self._state({"name": name, "statement": statement})

    def stop(self) -> None:
        """End the processes, if there are any; a borrowed one goes back to its owner."""
        with self._turn:
            for process in self._processes.values():
                if not process.is_borrowed:
                    process.end()
            self._processes.clear()

    def _check(self, name: str, statement: str, proof: str, timeout: float) -> str:
        goal = {"name": name, "statement": statement}
        self._state(goal)
        for role in ANSWERS:
            self._ready(role)
        deadline = time.monotonic() + timeout
        # An author may leave the kernel to the judge. Where the judge refuses, a proof may have had
        # another way to go on, or be mistaken: then it is the author's own kernel that says so.
        for is_checked in (False, True):
            request = goal | {"proof": proof, "checked": is_checked}
            answer, export = self._ask("author", request, deadline - time.monotonic())
            if answer.why == ELABORATED:
                answer, _ = self._ask("judge", goal, deadline - time.monotonic(), export)
            if answer.why != verdicts.FORBIDDEN or not export:
                break
        return answer.why

    def _state(self, goal: dict[str, str]) -> None:
        """Have both processes elaborate a statement with `sorry` for its proof.

        The judge says whether it is one. Of the author no more is believed than that it ended: if
        it does not, whatever the reason, it would fail at every proof.
        """
        name, statement = goal.values()
        if (name, statement) in self._stated:
            return
        answer, _ = self._ask("judge", goal, self.timeout)
        self._require_end("judge", answer, name)
        if answer.why != STATED:
            messages = [" ".join(message.split()) for message in answer.messages]
            reason = "; ".join(messages) or answer.why
            raise BadStatement(f"{name}: not accepted by {self.backend}: {reason}")
        attempt = goal | {"proof": " sorry", "checked": False}
        self._require_end("author", self._ask("author", attempt, self.timeout)[0], name)
        self._stated.add((name, statement))

    def _require_end(self, role: str, answer: Answer, name: str) -> None:
        if answer.why in (verdicts.TIMEOUT, verdicts.MEMORY, verdicts.CRASHED):
            self._stop(role)  # the next question goes to one that has seen no proof
            died = f"the {role} of {self.backend} did not elaborate {name}: {answer.why}"
            raise GraderDied(died)

    def _ask(
        self, role: str, request: dict, timeout: float, export: bytes | None = None
    ) -> tuple[Answer, bytes]:
        """Return the answer of a process and its export.

        It is asked once more where it ended itself: twice, and it is the proof's doing.
        """
        for is_last in (False, True):
            try:
                answer, own_export = self._ready(role).request(request, timeout, export)
            except TimeoutError:
                self._restart(role)
                return Answer(why=verdicts.TIMEOUT), b""
            except ProcessDied as death:
                self._restart(role)
                if death.was_killed:
                    died = f"the {role} of {self.backend} was killed: {death}"
                    raise GraderDied(died) from None
                if is_last:
                    return Answer(why=verdicts.CRASHED), b""
            except BaseException:  # an interrupted caller must not leave an answer for the next one
                self._stop(role)
                raise
            else:
                break
        if answer.megabytes > limits.LEAN_WORN_MB:
            self._restart(role)
        return answer, own_export

    def _ready(self, role: str) -> LeanProcess:
        """Return a process that is ready: one that died since its last answer is replaced."""
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
            if process.lives:
                return process
            self._stop(role)
        raise GraderDied(
            f"the {role} of {self.backend} died {limits.LEAN_STARTS} times before it could answer"
        )

    def _start(self) -> None:
        self.backend = self.backend or ensure_lean()
        for role in ANSWERS:
            if role not in self._processes:
                lent = borrow(role, self.backend, self.header)
                self._processes[role] = lent or LeanProcess(
                    self.backend, self.header, role, self.unsafe
                )

    def _restart(self, role: str) -> None:
        self._stop(role)
        self._start()

    def _stop(self, role: str) -> None:
        if process := self._processes.pop(role, None):
            process.end()
