"""Grades mathematical answers: compares the last \\boxed{} of a completion with the known answer.

A worker process (rapid/grading/math/worker) makes the comparison, so that it can be killed if the
comparison takes too long.
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
from rapid.grading.memory_cgroups import limit_memory
from rapid.grading.standby import Standby
from rapid.grading.verdicts import Verdict
from rapid.grading.worker import Worker

# Environment variables that the worker inherits.
_WORKER_ENVIRONMENT = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "PYTHONUSERBASE")
_WORKER = Path(__file__).resolve().with_name("worker")
_BOX = re.compile(r"\\(boxed|fbox)(?![a-zA-Z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # `\{` is text and matches as a whole
_TOKEN = re.compile(r"[0-9a-zA-Z]|\\[a-zA-Z]+")


def extract_last_boxed(text: str) -> str | None:
    """Return the content of the last \\boxed{}, stripped; None if there is none.

    Braces in the content are matched. As in TeX, the content of a \\boxed without braces is the
    next token. If the last \\boxed{ is never closed the result is None; earlier ones are not used.
    If there is no \\boxed, the last \\fbox is used.
    """
    last_boxes = {box[1]: box for box in _BOX.finditer(text)}
    box = last_boxes.get("boxed") or last_boxes.get("fbox")
    if box is None:
        return None
    start = box.end()
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
    """A question with one answer, both as LaTeX."""

    problem: str  # the text of the question
    answer: str  # the known answer; "" if there is none


class MathGrader:
    """Grades completions of `Question`s. A context manager; threads that share it take turns.

    Args:
        timeout: seconds to parse and compare one answer.
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        """Start the worker, or borrow one from the fork server (`rapid.grading.standby`).

        Raises:
            GraderDied: the worker does not start.
        """
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker, or return it to the fork server."""
        if self._worker is not None and self._worker.is_borrowed:
            self._worker = None  # the fork server takes it back
        self._end(limits.MATH_GRACE_SECONDS)

    def describe_isolation(self) -> str:
        return ""  # an answer is parsed, and no code in it is run

    def prepare(self, problem: Question) -> None:
        """Do nothing: there is no slow work to do in advance."""

    def grade(self, problem: Question, completion: str) -> Verdict:
        """Grade the answer in the last \\boxed{} of a completion.

        If the problem has no known answer (two problems of MATH), every answer is wrong.

        Raises:
            GraderDied: the worker died while it compared, did not reply in time, or cannot be
                started again.
        """
        answer = extract_last_boxed(completion)
        if not answer:
            return verdicts.build_verdict(verdicts.NO_ANSWER)
        gold, answer = _to_plain_line(problem.answer), _to_plain_line(answer)
        if not gold:
            return verdicts.build_verdict(verdicts.WRONG_ANSWER)
        if answer == gold:  # equal texts pass, even if the grammar cannot parse them
            return verdicts.build_verdict(verdicts.PASSED)
        if len(answer) > limits.MATH_CHARACTERS:
            return verdicts.build_verdict(verdicts.UNPARSABLE)
        with self._lock:
            try:
                return verdicts.build_verdict(self._compare(gold, answer, problem.problem))
            except BaseException:
                # Otherwise a late reply could be taken for the reply to the next request.
                self._end()
                raise

    def _compare(self, gold: str, answer: str, question: str) -> str:
        """Let the worker compare, and return the reason of its verdict.

        A worker that has died before this request is replaced.

        Raises:
            GraderDied: the worker, or its child that compares, died during this request, the worker
                did not reply in time, or it cannot be started again.
        """
        if self._worker is None or not self._worker.is_alive:
            self._end()
            self._start()
        request = {"gold": gold, "answer": answer, "question": question, "timeout": self.timeout}
        message = json.dumps(request).encode() + b"\n"
        # Within its time limit, a child can fill its memory. A second one then compares again.
        seconds = 2 * self.timeout + limits.MATH_REPLY_SECONDS
        reply = self._worker.ask(message, seconds).decode()
        if not reply:
            raise GraderDied("the math worker died, or does not respond")
        if reply == verdicts.INFRASTRUCTURE:
            raise GraderDied("the process that compares answers was killed")
        return reply

    def _start(self) -> None:
        # Checked here to raise a clear error: the worker could only print that one is missing.
        for package in ("lark", "sympy"):
            if find_spec(package) is None:
                raise ModuleNotFoundError(f"No module named '{package}'", name=package)
        # Borrow a worker. If none is lent, or the lent one has died, start one.
        for get_worker in (lambda: STANDBY.borrow("worker"), _start_worker):
            self._worker = get_worker()
            if self._worker is None:
                continue
            if self._worker.ask(b"\n", limits.MATH_START_SECONDS):
                return
            self._end()
        raise GraderDied(
            f"the math worker ended, or did not start within {limits.MATH_START_SECONDS:.0f} s; if "
            "it printed an error, the error is above"
        )

    def _end(self, patience: float = 0.0) -> None:
        """Close the connection and wait until the worker has killed its child and ended."""
        if self._worker is not None:
            self._worker.end(patience)
            self._worker = None


def _start_worker() -> Worker:
    """Start a worker. It inherits little of the environment, which may hold secrets."""
    # The worker's argument is the address space of its child, the process that compares.
    command = [sys.executable, "-P", str(_WORKER), str(limits.MATH_BYTES)]
    environment = {name: os.environ[name] for name in _WORKER_ENVIRONMENT if name in os.environ}
    environment["PYTHONHASHSEED"] = "0"  # sympy's order of terms depends on the seed of hashes
    return Worker(limit_memory(command, limits.MATH_MB), env=environment)


# The workers that the fork server lends to jobs: one for each job, in the only role, "worker".
STANDBY = Standby(lambda _: _start_worker(), ["worker"])


def _to_plain_line(answer: str) -> str:
    """Return an answer on one line, without $, \\displaystyle and a final punctuation mark."""
    line = " ".join(re.sub(r"(?<!\\)\$|\\displaystyle(?![a-zA-Z])", "", answer).split())
    return re.sub(r"(?<!\\)(?<!\.\.)[.,;]$", "", line)  # 1, 2, ... keeps its dots
