"""Grades mathematical answers: the last \\boxed{} of a completion against the known answer.

A worker process, which can be killed, reads and compares them: rapid/grading/math/worker.
"""

import json
import os
import re
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, Self

from rapid.grading import limits, verdicts
from rapid.grading.grader import GraderDied, Problem
from rapid.grading.memory import limit_memory
from rapid.grading.standby import Standby
from rapid.grading.verdicts import Verdict
from rapid.grading.worker import Worker

_PYTHON_NEEDS = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
_WORKER = Path(__file__).resolve().with_name("worker")
_BOX = re.compile(r"\\(boxed|fbox)(?![a-zA-Z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is text
_TOKEN = re.compile(r"[0-9a-zA-Z]|\\[a-zA-Z]+")


def last_boxed(text: str) -> str | None:
    """Return what the last \\boxed{} holds, stripped; None without one.

    Braces nest; without them a box holds the one token that follows, as in TeX. A last box that is
    never closed holds no answer: earlier ones do not count. Without any \\boxed, \\fbox counts.
    """
    boxes = list(_BOX.finditer(text))
    boxes = [box for box in boxes if box[1] == "boxed"] or boxes
    if not boxes:
        return None
    start = boxes[-1].end()
    if not text.startswith("{", start):
        token = _TOKEN.match(text, start)
        return token and token.group()
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return text[start + 1 : brace.start()].strip()
    return None


class Question(Problem, Protocol):
    """A question with one answer, as LaTeX."""

    problem: str
    answer: str


class MathGrader:
    """Grades completions of `Question`s. A context manager; threads that share it take turns.

    Args:
        timeout: seconds to read and compare one answer.
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        """Start the worker, or borrow one; raise GraderDied where it does not start."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None and self._worker.is_borrowed:
            self._worker = None  # it goes back to its owner
        self._end(limits.MATH_GRACE_SECONDS)

    def walls(self) -> str:
        return ""  # an answer is read and never run

    def prepare(self, problem: Question) -> None:
        """Do nothing: a known answer is read in no time."""

    def grade(self, problem: Question, completion: str) -> Verdict:
        """Grade a completion by its last box.

        A problem without an answer (MATH has two) is passed by nothing.

        Raises:
            GraderDied: the worker died over the answer, or does not start again.
        """
        answer = last_boxed(completion)
        if not answer:
            return verdicts.verdict(verdicts.NO_ANSWER)
        gold, answer = _to_plain_line(problem.answer), _to_plain_line(answer)
        if gold and answer == gold:  # whatever the grammar makes of it
            return verdicts.verdict(verdicts.PASSED)
        if not gold:
            return verdicts.verdict(verdicts.WRONG_ANSWER)
        if len(answer) > limits.MATH_CHARACTERS:
            return verdicts.verdict(verdicts.UNPARSABLE)
        with self._lock:
            try:
                return verdicts.verdict(self._compare(gold, answer, problem.problem))
            except BaseException:
                self._end()  # or the reply to this question would be taken for the next one's
                raise

    def _compare(self, gold: str, answer: str, question: str) -> str:
        """Ask the worker, or another one if it has died; raise GraderDied if it dies of this."""
        if self._worker is None or not self._worker.lives:
            self._end()
            self._start()
        request = {"gold": gold, "answer": answer, "question": question, "timeout": self.timeout}
        message = json.dumps(request).encode() + b"\n"
        reply = self._worker.ask(message, self.timeout + limits.MATH_REPLY_SECONDS).decode()
        if not reply:
            raise GraderDied("the math worker died, or does not respond")
        if reply == verdicts.INFRASTRUCTURE:
            raise GraderDied("the process that compares answers was killed")
        return reply

    def _start(self) -> None:
        for package in ("lark", "sympy"):  # said here: the worker is asked for a verdict only
            if find_spec(package) is None:
                raise ModuleNotFoundError(f"No module named '{package}'", name=package)
        for get_worker in (
            lambda: STANDBY.borrow("worker"),
            _start_worker,
        ):  # a lent one may have died
            self._worker = get_worker()
            if self._worker is None:
                continue
            if self._worker.ask(b"\n", limits.MATH_START_SECONDS):
                return
            self._end()
        raise GraderDied("the math worker did not start; its message is above")

    def _end(self, patience: float = 0.0) -> None:
        """End the worker, which ends its child, however busy, when the connection closes."""
        if self._worker is not None:
            self._worker.end(patience)
            self._worker = None


def _start_worker() -> Worker:
    command = [sys.executable, "-P", str(_WORKER), str(limits.MATH_BYTES)]
    # No secrets. sympy's order of terms follows the seed of hashes.
    environment = {name: os.environ[name] for name in _PYTHON_NEEDS if name in os.environ}
    environment["PYTHONHASHSEED"] = "0"
    return Worker(limit_memory(command, limits.MATH_MB), env=environment)


STANDBY = Standby(lambda _: _start_worker(), ["worker"])  # what the fork server lends to its jobs


def _to_plain_line(answer: str) -> str:
    """Return an answer on one line, without dollar signs and the end of its sentence."""
    line = " ".join(re.sub(r"(?<!\\)\$|\\displaystyle(?![a-zA-Z])", "", answer).split())
    return re.sub(r"(?<!\\)[.,;]$", "", line)
