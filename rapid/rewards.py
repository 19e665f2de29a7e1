"""Reward functions for any trainer: sandboxed graders of mathematics, Python and Lean.

    from rapid.rewards import math_reward

    GRPOTrainer(model, reward_funcs=math_reward, train_dataset=dataset_with_answers)

| reward        | a completion is right if               | columns of the dataset              |
|---------------|----------------------------------------|-------------------------------------|
| `math_reward` | its last `\\boxed{}` is the answer      | `answer`; `problem` or `question`   |
| `code_reward` | its function passes the tests          | `tests`, or the columns of MBPP+    |
| `lean_reward` | it proves the theorem                  | `theorem`; `header`                 |

They are called as TRL's trainers call a reward, `reward(prompts, completions, **columns)`, and
return 1.0 for each completion that is right, 0.0 for one that is wrong, and None for one that was
not graded. A completion is a text or a list of messages, of which the last one by the assistant is
graded. `CodeReward(timeout=5, workers=8)` makes a reward with other settings.

- A completion never runs outside the sandbox. Where there can be no sandbox, the first call raises
  an error that says what to install.
- None has three causes: the grader died twice over the completion; the problem is at fault, which
  the log names; the row has no value in the column, so that a dataset can mix problems for several
  rewards. If graders die over more than one completion and more than 1 % of them, `GradingFailed`
  is raised.
- The first call starts the graders' processes. All rewards with the same settings share them. Each
  process of a run has its own, also after a fork. They end with it, or when `close` is called.

Rewards for format and length are TRL's: `trl.rewards.think_format_reward`,
`get_soft_overlong_punishment` and `get_repetition_penalty_reward`. docs/rewards.md has examples for
several trainers, and says how many verdicts a second to expect.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus.columns import read_asserts, read_hub_row, read_release_row
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading.grader import BadProblem, Problem
from rapid.grading.lean.extract import find_name
from rapid.grading.math.grader import last_boxed
from rapid.grading.shared import close, share_graders
from rapid.grading.verdicts import Verdict

__all__ = ["CodeReward", "LeanReward", "MathReward", "close"]
__all__ += ["code_reward", "lean_reward", "math_reward"]

# What trainers pass beside the columns of the dataset.
NOT_COLUMNS = {"completion_ids", "environments", "log_extra", "log_metric", "trainer_state"}


class GradedReward(ABC):
    """Base class of the rewards.

    Args:
        timeout: seconds for a verdict; None for the usual ones of the benchmark.
        workers: completions that are graded at a time; None for this process's share of the cores,
            but at most `most_workers`.

    Raises:
        ValueError: one of them is not positive.
    """

    __name__: str  # TRL names metrics after it
    benchmark: ClassVar[str]  # whose grader it uses
    column_sets: ClassVar[tuple[tuple[str, ...], ...]]  # one of which the dataset needs
    most_workers: ClassVar[int] = 8

    def __init__(self, timeout: float | None = None, workers: int | None = None):
        self.timeout = BENCHMARKS[self.benchmark].usual_timeout if timeout is None else timeout
        self.workers = workers
        if not self.timeout > 0 or (workers is not None and workers < 1):
            raise ValueError(f"timeout={timeout}, workers={workers}: set timeout > 0, workers >= 1")

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Return 1.0 for right completions, 0.0 for others, and None for what was not graded."""
        verdicts = self.grade(prompts, completions, **columns)
        return [verdict.reward if verdict else None for verdict in verdicts]

    def grade(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[Verdict | None]:
        """Return verdicts, with their reasons; None where a row has no problem for this reward.

        Raises:
            ValueError: a column is missing, or a value has a type that cannot be graded.
            GradingFailed: graders die too often.
            SandboxError: completions cannot be sandboxed here.
            LeanUnavailable: Lean does not start here.
        """
        columns = {name: columns[name] for name in columns if name not in NOT_COLUMNS}
        self._require_columns(columns)
        with name_extra():
            return self._grade_rows(prompts, completions, columns)

    def _grade_rows(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[Verdict | None]:
        problems: list[Problem | BadProblem | None] = []
        for number, prompt in enumerate(prompts):
            try:
                row = {name: values[number] for name, values in columns.items()}
                problems.append(self._read_problem(prompt, row))
            except BadProblem as error:
                problems.append(error)
        texts = [read_text(completion) for _, completion in zip(prompts, completions, strict=True)]
        workers = self.workers or min(count_cores(), self.most_workers)
        make = BENCHMARKS[self.benchmark].grader
        return share_graders(self.benchmark, self.timeout, workers, make).grade(problems, texts)

    def _require_columns(self, columns: Mapping[str, Any]) -> None:
        if not any(columns.keys() >= {*needed} for needed in self.column_sets):
            needed = ", or ".join(" and ".join(map(repr, names)) for names in self.column_sets)
            raise ValueError(
                f"{self.__name__} needs the column {needed}, but the dataset has "
                f"{', '.join(map(repr, columns)) or 'none beside the prompt'}. Rename one with "
                "dataset.rename_column, or add it with dataset.map"
            )

    @abstractmethod
    def _read_problem(self, prompt: Any, row: Mapping[str, Any]) -> Problem | None:
        """Return the problem of a row, None if it has none; raise BadProblem or ValueError."""


class MathReward(GradedReward):
    """1.0 if the last `\\boxed{}` of a completion is the answer in `answer`.

    The answer is LaTeX or an integer; of a solution its last `\\boxed{}` counts, or what follows
    `####` as in GSM8K. The question decides the form and the unit: it is `problem` or `question`
    of the row, else the prompt, or its last message by the user.
    """

    __name__ = "math_reward"
    benchmark = "math"
    column_sets = (("answer",),)

    def _read_problem(self, prompt: Any, row: Mapping[str, Any]) -> MathProblem | None:
        answer = row["answer"]
        if answer is None:
            return None
        if isinstance(answer, bool) or not isinstance(answer, str | int):
            raise ValueError(
                f"{self.__name__}: answer is {answer!r}, a {type(answer).__name__}: make it text"
            )
        answer = last_boxed(str(answer)) or str(answer).rpartition("####")[2]
        question = row.get("problem") or row.get("question") or read_text(prompt, "user")
        problem = MathProblem(unique_id="", problem=question, answer=answer)
        if problem.unusable_reason:
            raise BadProblem(f"{question[:100]!r}: {problem.unusable_reason}")
        return problem


class CodeReward(GradedReward):
    """1.0 if the function in a completion passes all tests of its row.

    Rows have `tests`, texts of the form `assert f(1) == 2`; or the columns of MBPP+, as on the hub
    or as in EvalPlus's release, where inputs may be JSON.
    """

    __name__ = "code_reward"
    benchmark = "mbpp_plus"
    column_sets = (
        ("tests",),
        ("task_id", "code", "test"),
        ("task_id", "entry_point", "canonical_solution", "base_input", "plus_input"),
    )

    def _read_problem(self, prompt: Any, row: Mapping[str, Any]) -> Problem | None:
        _, hub, release = self.column_sets
        if (tests := row.get("tests")) is not None:
            if not all(isinstance(test, str) for test in tests):
                raise ValueError(f"{self.__name__}: tests is {tests!r}: make it a list of texts")
            return read_asserts(tests)
        if row.get("code") is not None and row.get("test") is not None:
            return read_hub_row(*(row[name] for name in hub))
        if row.get("entry_point") is None:
            return None
        fields = {name: row[name] for name in release}
        return read_release_row(**fields, atol=row.get("atol") or 0.0)


class LeanReward(GradedReward):
    """1.0 if a completion proves the statement in `theorem`, after the imports in `header`.

    miniF2F's `formal_statement` will do for `theorem`.
    """

    __name__ = "lean_reward"
    benchmark = "minif2f"
    column_sets = (("theorem",), ("formal_statement",))
    most_workers = 2  # a gigabyte each

    def _read_problem(self, prompt: Any, row: Mapping[str, Any]) -> LeanProblem | None:
        statement = row.get("theorem") or row.get("formal_statement")
        if statement is None:
            return None
        if not isinstance(statement, str):
            raise ValueError(f"{self.__name__}: theorem is {statement!r}: make it text")
        if (name := find_name(statement)) is None:
            raise BadProblem(f"{statement[:100]!r} states no theorem with a name")
        header = row.get("header") or ""
        return LeanProblem(name=name, formal_statement=statement, header=header)


def read_text(message: Any, role: str = "assistant") -> str:
    """Return a text as it is; of a list of messages the content of the last one by this role."""
    if message is None or isinstance(message, str):
        return message or ""
    contents = [part.get("content") for part in message if part.get("role", role) == role]
    content = contents[-1] if contents else ""
    if isinstance(content, list):  # of blocks
        return "".join(block.get("text") or "" for block in content)
    return content or ""


@contextmanager
def name_extra() -> Iterator[None]:
    """Say which extra has a package that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        error.add_note("The graders' packages are an extra: pip install 'rapid-rl[graders]'")
        raise


def count_cores() -> int:
    """Return this process's share of the cores that it may use, at least 1."""
    may_use = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return max(1, len(may_use(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


math_reward = MathReward()
code_reward = CodeReward()
lean_reward = LeanReward()
