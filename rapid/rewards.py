"""Reward functions for any trainer: sandboxed graders of mathematics, Python and Lean.

    from rapid.rewards import math_reward

    GRPOTrainer(model, reward_funcs=math_reward, train_dataset=dataset_with_answers)

| reward        | a completion is correct if             | columns; after ";" optional ones    |
|---------------|----------------------------------------|-------------------------------------|
| `math_reward` | its last `\\boxed{}` is the answer      | `answer`; `problem` or `question`   |
| `code_reward` | its function passes the tests          | `tests`, or the columns of MBPP+    |
| `lean_reward` | it proves the theorem                  | `theorem`; `header`                 |

TRL's trainers call a reward function as `reward(prompts, completions, **columns)`. These reward
functions return 1.0 for each correct completion, 0.0 for each wrong one, and None for one that was
not graded. A completion is text, or a list of messages, of which the assistant's last one is
graded. `CodeReward(timeout=5, workers=8)` makes a reward function with other settings.

- A completion never runs outside the sandbox. If the sandbox does not work, the first call raises
  an error that says what to install.
- None has three causes: the grader crashed twice on the completion; the problem is faulty, which is
  logged; or the row has no value in the column, so that a dataset can mix problems for several
  reward functions. `GradingFailed` is raised if graders crash on more than one completion and on
  more than 1 % of all.
- The first call starts the graders' processes. All reward functions with equal settings share them.
  Each training process has graders of its own, also after a fork. They end with the process, or
  when `close` is called.

TRL has reward functions for format and length: `trl.rewards.think_format_reward`,
`get_soft_overlong_punishment` and `get_repetition_penalty_reward`. docs/rewards.md has examples for
several trainers, and measured speeds.
"""

import numbers
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus.columns import parse_asserts, parse_hub_row, parse_release_row
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading import limits
from rapid.grading.grader import BadProblem, Problem
from rapid.grading.lean.extract import find_theorem_name
from rapid.grading.math.grader import extract_last_boxed
from rapid.grading.shared import close, share_graders
from rapid.grading.verdicts import Verdict

__all__ = ["CodeReward", "LeanReward", "MathReward", "close"]
__all__ += ["code_reward", "lean_reward", "math_reward"]

MAX_TIMEOUT = 86_400  # seconds, a day; the system's timers and limits do not accept infinity
# Arguments that trainers pass besides the columns of the dataset.
NOT_COLUMNS = {"completion_ids", "environments", "log_extra", "log_metric", "trainer_state"}


class GradedReward(ABC):
    """Base class of the reward functions."""

    __name__: str  # appears in the names of TRL's metrics
    benchmark: ClassVar[str]  # the benchmark whose grader is used
    column_sets: ClassVar[tuple[tuple[str, ...], ...]]  # the dataset needs one of these sets
    optional_columns: ClassVar[tuple[str, ...]] = ()
    max_workers: ClassVar[int] = 8

    def __init__(self, timeout: float | None = None, workers: int | None = None):
        """Set the time limit and the number of graders.

        Args:
            timeout: seconds for a verdict; None for the default of the benchmark.
            workers: number of completions to grade in parallel; None for this process's share of
                the cores, at most `max_workers`.

        Raises:
            ValueError: `timeout` or `workers` is out of bounds.
        """
        self.timeout = BENCHMARKS[self.benchmark].default_timeout if timeout is None else timeout
        self.workers = workers
        is_time = isinstance(self.timeout, numbers.Real) and 0 < self.timeout <= MAX_TIMEOUT
        if not is_time or (workers is not None and (not isinstance(workers, int) or workers < 1)):
            raise ValueError(
                f"timeout={timeout!r}, workers={workers!r}: set timeout to a number of seconds "
                f"above 0 and up to {MAX_TIMEOUT}, and workers to a whole number from 1"
            )

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Return 1.0 for correct completions, 0.0 for wrong ones, None for ungraded ones."""
        verdicts = self.grade(prompts, completions, **columns)
        return [None if verdict is None else verdict.reward for verdict in verdicts]

    def grade(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[Verdict | None]:
        """Return verdicts, with their reasons; None where a row has no problem for this reward.

        Raises:
            ValueError: a column is missing or has another length, or a value has a type that cannot
                be graded.
            GradingFailed: graders die too often.
            GradersClosed: another thread has called `close`.
            GraderDied: graders do not start. SandboxError, a subclass: completions cannot be
                sandboxed here.
            LeanUnavailable: Lean does not start here.
        """
        columns = {name: columns[name] for name in columns if name not in NOT_COLUMNS}
        rows = self._build_rows(prompts, completions, columns)
        with note_missing_extra():
            problems = [self._read_row(row) for row in rows]
            texts = [self._read_text("completions", row["completions"]) for row in rows]
            workers = self.workers or min(count_cores(), self.max_workers)
            build_pool = BENCHMARKS[self.benchmark].build_grader
            graders = share_graders(self.benchmark, self.timeout, workers, build_pool)
            return graders.grade(problems, texts)

    def _build_rows(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return a row for each completion, with its prompt and the columns for this reward."""
        if not any(columns.keys() >= {*names} for names in self.column_sets):
            choices = ", or ".join(" and ".join(map(repr, names)) for names in self.column_sets)
            raise ValueError(
                f"{self.__name__} needs the column {choices}, but the dataset has "
                f"{', '.join(map(repr, columns)) or 'none besides the prompt'}. Rename one with "
                "dataset.rename_column, or add it with dataset.map"
            )
        needed = {name for names in self.column_sets for name in names} | {*self.optional_columns}
        batch = {"prompts": prompts, "completions": completions}
        batch |= {name: columns[name] for name in columns if name in needed}
        for name, values in batch.items():
            if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
                self._raise_for_value(name, values, "make it a list, with one value per completion")
        if len({*map(len, batch.values())}) > 1:
            lengths = ", ".join(f"{name} {len(values)}" for name, values in batch.items())
            raise ValueError(f"{self.__name__}: the numbers of values differ: {lengths}")
        rows = zip(*batch.values(), strict=True)
        return [dict(zip(batch, values, strict=True)) for values in rows]

    def _read_row(self, row: Mapping[str, Any]) -> Problem | BadProblem | None:
        """Return the problem of a row, or why it is faulty; None if the row has no problem."""
        try:
            problem = self._read_problem(row)
        except BadProblem as error:
            return error
        try:
            if problem:
                _ = problem.digest  # computed from UTF-8, so it fails if a field is not text
        except ValueError:
            return BadProblem(
                f"{ascii(row['prompts'])[:100]}: the row has half a surrogate pair, which is "
                "not text"
            )
        return problem

    @abstractmethod
    def _read_problem(self, row: Mapping[str, Any]) -> Problem | None:
        """Return the problem of a row; None if the row has none.

        Raises:
            BadProblem: the problem is faulty, so its completions are not graded.
            ValueError: a value has the wrong type.
        """

    def _get_text(self, row: Mapping[str, Any], *names: str) -> str:
        """Return the text in the first of these columns that is not empty; "" if all are empty."""
        for name in names:
            if (value := row.get(name)) is not None and not isinstance(value, str):
                self._raise_for_value(name, value, "make it text")
            if value:
                return value
        return ""

    def _read_text(self, name: str, value: Any, role: str = "assistant") -> str:
        """Return a prompt or a completion as text."""
        try:
            return read_text(value, role)
        except (AttributeError, TypeError):
            self._raise_for_value(name, value, "make it text or a list of messages")

    def _raise_for_value(self, name: str, value: Any, advice: str) -> NoReturn:
        kind = type(value).__name__
        raise ValueError(f"{self.__name__}: {name} is {value!r:.100}, of type {kind}: {advice}")


class MathReward(GradedReward):
    """1.0 if the last `\\boxed{}` of a completion is the answer in `answer`.

    The answer is LaTeX or an integer. From a whole solution, the last `\\boxed{}` is taken, or what
    follows `####` as in GSM8K. The question determines the form and the unit of the answer. It is
    the row's `problem` or `question`, or else the prompt (of a chat, the user's last message).
    """

    __name__ = "math_reward"
    benchmark = "math"
    column_sets = (("answer",),)
    optional_columns = ("problem", "question")

    def _read_problem(self, row: Mapping[str, Any]) -> MathProblem | None:
        answer = row["answer"]
        if answer is None:
            return None
        if isinstance(answer, bool) or not isinstance(answer, str | numbers.Integral):
            self._raise_for_value("answer", answer, "make it text")
        answer = extract_last_boxed(str(answer)) or str(answer).rpartition("####")[2]
        question = self._get_text(row, *self.optional_columns)
        question = question or self._read_text("prompts", row["prompts"], "user")
        problem = MathProblem(unique_id="", problem=question, answer=answer)
        reason = problem.unusable_reason
        if len(answer) > limits.MATH_CHARACTERS:
            reason = (
                f"an answer of {len(answer)} characters; at most {limits.MATH_CHARACTERS} are "
                "allowed. In a solution, put the answer in \\boxed{} or after ####"
            )
        if reason:
            raise BadProblem(f"{question[:100]!r}: {reason}")
        return problem


class CodeReward(GradedReward):
    """1.0 if the function in a completion passes all tests of its row.

    Rows have `tests`, such as `["assert f(1) == 2"]`, or the columns of MBPP+, as on the hub or as
    in EvalPlus's release, where inputs may be JSON.
    """

    __name__ = "code_reward"
    benchmark = "mbpp_plus"
    column_sets = (
        ("tests",),
        ("task_id", "code", "test"),
        ("task_id", "entry_point", "canonical_solution", "base_input", "plus_input"),
    )
    optional_columns = ("atol",)

    def _read_problem(self, row: Mapping[str, Any]) -> Problem | None:
        if (tests := row.get("tests")) is not None:
            tests = [tests] if isinstance(tests, str) else tests
            if not is_list_of_text(tests):
                self._raise_for_value("tests", tests, "make it a list of text")
            return parse_asserts("\n".join(tests))
        code, test = (self._get_text(row, name) for name in ("code", "test"))
        if code and test:
            return parse_hub_row(str(row["task_id"]), code, test)
        if not self._get_text(row, "entry_point"):
            return None
        fields = {name: row[name] for name in self.column_sets[-1]}
        return parse_release_row(**fields, atol=row.get("atol") or 0.0)


class LeanReward(GradedReward):
    """1.0 if a completion proves the statement in `theorem`, after the imports in `header`.

    The column of the statement may also be miniF2F's `formal_statement`.
    """

    __name__ = "lean_reward"
    benchmark = "minif2f"
    column_sets = (("theorem",), ("formal_statement",))
    optional_columns = ("header",)
    max_workers = 2  # a worker takes more than a gigabyte

    def _read_problem(self, row: Mapping[str, Any]) -> LeanProblem | None:
        statement = self._get_text(row, "theorem", "formal_statement")
        if not statement:
            return None
        if (name := find_theorem_name(statement)) is None:
            raise BadProblem(f"{statement[:100]!r} states no theorem with a name")
        header = self._get_text(row, "header")
        return LeanProblem(name=name, formal_statement=statement, header=header)


def read_text(chat: Any, role: str = "assistant") -> str:
    """Return text as it is, and from a list of messages the content of the role's last message.

    Raises:
        AttributeError, TypeError: `chat` is neither text nor a list of messages.
    """
    if chat is None or isinstance(chat, str):
        return chat or ""
    messages = [message for message in chat if get_field(message, "role") in (role, None)]
    contents = [get_field(message, "content") for message in messages]
    content = contents[-1] if contents else ""
    if isinstance(content, list):  # a list of blocks
        content = "".join(get_field(block, "text") or "" for block in content)
    if not isinstance(content, str | None):
        raise TypeError(f"content is a {type(content).__name__}")
    return content or ""


def get_field(message: Any, name: str) -> Any:
    """Return a field of a message or a block: a dictionary, or an object of OpenAI's client."""
    return message.get(name) if hasattr(message, "get") else getattr(message, name)


def is_list_of_text(value: Any) -> bool:
    is_list = isinstance(value, Iterable) and not isinstance(value, Mapping)
    return is_list and all(isinstance(item, str) for item in value)


@contextmanager
def note_missing_extra() -> Iterator[None]:
    """Add the name of the extra to the error about a missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        error.add_note("The graders' packages are an extra: pip install 'rapid-rl[graders]'")
        raise


def count_cores() -> int:
    """Return this process's share of the cores that it may use, at least 1.

    The processes of torchrun and accelerate share the cores that each of them may use. mpirun and
    srun can bind each process to cores of its own, which are then its share.
    """
    machine_cores = int(os.environ.get("SLURM_CPUS_ON_NODE") or os.cpu_count() or 1)
    get_cores = getattr(os, "sched_getaffinity", lambda _: range(machine_cores))
    cores = len(get_cores(0))
    if processes := os.environ.get("LOCAL_WORLD_SIZE"):
        return max(1, cores // int(processes))
    processes = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    processes = processes or os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    count = re.fullmatch(r"(\d+)(?:\(x\d+\))?", processes)  # of srun: 8, or 8(x2) on two machines
    return max(1, min(cores, machine_cores // int(count[1]))) if count else cores


math_reward = MathReward()
code_reward = CodeReward()
lean_reward = LeanReward()
