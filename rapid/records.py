"""The rows that pass between stages, and how they are read and written.

Every stage reads files and writes files; these are the shapes of what is in them.
Problems keep the field names of the published benchmarks, so that an embedded
problem and a real one are the same record:

- `CodeProblem`: a row of EvalPlus's MBPP+ release,
- `MathProblem`: a row of MATH,
- `LeanProblem`: a Lean 4 theorem without its proof, core Lean or Mathlib.
"""

import gzip
import hashlib
import json
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

Row = TypeVar("Row", bound=BaseModel)
GZIP_MAGIC = b"\x1f\x8b"


class Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class BenchmarkRow(Record, ABC):
    """A benchmark's problem."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # MBPP+ has an infinite input

    @property
    @abstractmethod
    def content(self) -> str:
        """What makes two problems the same, whatever their ids."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class CodeProblem(BenchmarkRow):
    """A function to write (MBPP+). Each input is the list of the call's positional arguments."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    base_input: list[list[Any]]
    plus_input: list[list[Any]]
    atol: float = 0.0
    contract: str = ""
    assertion: str = ""

    @field_validator("plus_input", mode="before")
    @classmethod
    def _no_plus_inputs(cls, value):
        return value or []  # the release writes {} where there are none

    @property
    def id(self) -> str:
        return self.task_id

    @property
    def content(self) -> str:
        return self.prompt.split("assert")[0].strip()  # the example is no part of the task


class MathProblem(BenchmarkRow):
    """A question whose completion ends in `\\boxed{answer}` (MATH)."""

    unique_id: str
    problem: str
    answer: str
    solution: str = ""
    subject: str = ""
    level: int | str | None = None

    @property
    def id(self) -> str:
        return self.unique_id

    @property
    def content(self) -> str:
        return self.problem


class LeanProblem(BenchmarkRow):
    """A theorem to prove. `formal_statement` ends in `:= by`; `header` is what stands before it."""

    name: str = Field(validation_alias=AliasChoices("name", "id"))
    formal_statement: str = Field(
        validation_alias=AliasChoices("formal_statement", "statement"),
        description="core-Lean rows call it statement",
    )
    header: str = ""
    split: str = ""
    informal_prefix: str = Field("", description="the statement in words, as a Lean comment")

    @model_validator(mode="before")
    @classmethod
    def _words_as_a_comment(cls, row: Any) -> Any:
        if isinstance(row, dict) and (words := row.get("informal_stmt")):
            return {"informal_prefix": f"/-- {words.strip()} -/\n", **row}
        return row

    @field_validator("formal_statement")
    @classmethod
    def _open_ended(cls, statement: str) -> str:
        """Some publish a proof that is `sorry`, with or without `by`, or none."""
        stated = re.sub(r"\s*(:=\s*)?(\bby\s*)?(\bsorry\s*)?\Z", "", statement)
        return statement if statement.rstrip().endswith(":= by") else f"{stated} := by\n"

    @property
    def id(self) -> str:
        return self.name

    @property
    def content(self) -> str:
        return self.formal_statement.replace(self.name, "", 1)


Problem = CodeProblem | MathProblem | LeanProblem


class Verdict(Record):
    """What a grader says of one completion: `reward` is 1.0 for correct, else 0.0.

    It is `None` where the grader died: that says nothing of the completion.
    """

    reward: float | None
    reason: str


class Demonstration(Record):
    """One completion to imitate, and the problem that it answers."""

    id: str
    prompt: str = Field(description="the problem as a text to continue")
    message: str = Field(description="the problem as said to a chat model")
    completion: str


class StepRecord(Record):
    """steps.jsonl: one optimizer step. Lengths are tokens; `None` where a thing is not defined."""

    step: int
    seconds: float = Field(description="since the training loop began")
    loss: float
    gradient_norm: float = Field(description="before clipping")
    reward: float | None = Field(None, description="mean task reward of the mini-batch")
    signal: float | None = Field(None, description="share of groups whose rewards differ")
    completion_length: float | None = None
    staleness: float | None = Field(None, description="mean |log min(w, eta)|")
    clip_fraction: float | None = Field(None, description="share of weights, or ratios, clipped")
    weight: float | None = Field(None, description="mean importance weight before clipping")
    kl: float | None = Field(None, description="nats a token, to the model before training")
    run: float | None = Field(
        None, description="share of the mini-batch with a gradient, which ran"
    )
    sampling: float | None = Field(None, description="seconds of this step, as those that follow")
    grading: float | None = None
    backpropagation: float | None = None
    sync: float | None = None


class Runtime(Record):
    """Wall-clock seconds of one training job. `total` is the training loop: the sum of its phases.

    `startup` (imports, loading the model, starting the grader) comes before the loop and is not in
    `total`.
    """

    total: float
    sampling: float = 0.0
    grading: float = 0.0
    backpropagation: float = 0.0
    sync: float = 0.0
    other: float = 0.0
    startup: float = 0.0


class RunSummary(Record):
    """summary.json of a training job. Means are over its optimizer steps, as in the paper's Table 3."""

    benchmark: str
    model: str
    algorithm: str
    seed: int
    status: Literal["ok", "unavailable"] = "ok"
    note: str = Field("", description="why the status is 'unavailable'")
    runtime: Runtime | None = None
    optimizer_steps: int = 0
    completions: int = Field(0, description="completions sampled, resampled ones too")
    staleness: float | None = None
    clip_fraction: float | None = None
    run: float | None = Field(None, description="mean share of a mini-batch that was run")
    completion_length: float | None = Field(None, description="mean tokens a completion")
    reward_first: float | None = Field(None, description="mean reward, first tenth of the steps")
    reward_last: float | None = Field(None, description="mean reward, last tenth of the steps")
    reasons: dict[str, int] = Field(default_factory=dict, description="verdicts by reason")
    peak_memory_mb: float = Field(
        0.0, description="the most that the process held, 1e6 bytes: of its GPU, or else resident"
    )
    hardware: str = Field("", description="processor or GPU and count, in words")
    commit: str = Field("", description="git commit of the code, with +dirty where it was")


class TokenWeights(Record):
    """token_weights.json: one completion of a RAPID run, as its last optimizer step weighed it."""

    tokens: list[str] = Field(min_length=1, description="the completion's tokens, as text")
    log_weights: list[float] = Field(description="log pi - log mu, nats, one a token")
    H: int
    step: int = Field(description="optimizer step, from 1")
    benchmark: str
    id: str = Field(description="of the problem")

    @model_validator(mode="after")
    def _one_a_token(self):
        if len(self.tokens) != len(self.log_weights):
            raise ValueError(
                f"{len(self.tokens)} tokens, but {len(self.log_weights)} log_weights: one a token"
            )
        return self


class CurvePoint(Record):
    """curve.jsonl: accuracy on the test problems of a model kept on the way."""

    step: int
    seconds: float = Field(description="of training until then, without keeping models")
    pass_at: dict[int, float] = Field(description="k -> mean over problems")


class ProblemScore(Record):
    """`correct` of the `samples` completions of one test problem that were graded are correct."""

    id: str
    samples: int
    correct: int


class Evaluation(Record):
    """evaluation.json: pass@k by the unbiased estimator over `samples` completions a problem."""

    benchmark: str
    model: str
    algorithm: str = Field(description="'base' for the model before training")
    seed: int
    status: Literal["ok", "unavailable"] = "ok"
    note: str = Field("", description="why the status is 'unavailable'")
    pass_at: dict[int, float] = Field(
        default_factory=dict,
        description="k -> mean over the problems of which at least k completions were graded",
    )
    problems: int = 0
    samples: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    max_completion_length: int = 0
    completion_length: float | None = Field(None, description="mean tokens a completion")
    reasons: dict[str, int] = Field(default_factory=dict, description="verdicts by reason")
    scores: list[ProblemScore] = Field(default_factory=list)


class BadInput(ValueError):
    """What somebody gave cannot be used. The message says what is wrong, where, and what to do."""


class BadRow(BadInput):
    """A line of a JSON-lines file is not the record that it should be."""


def read_jsonl(path: Path | str, row_type: type[Row]) -> Iterator[Row]:
    """Yield the rows of a JSON-lines file, plain or gzip.

    Raises:
        BadRow: with the file, the line number and what is wrong with it.
    """
    for _, row in numbered_rows(path, row_type):
        yield row


def numbered_rows(
    path: Path | str, row_type: type[Row], parse: Callable[[bytes], Row] | None = None
) -> Iterator[tuple[int, Row]]:
    """`read_jsonl`, with each row's line number. `parse` reads a line, if not the row's own JSON."""
    parse = parse or row_type.model_validate_json
    with open(path, "rb") as plain:
        lines = gzip.GzipFile(fileobj=plain) if plain.peek(2)[:2] == GZIP_MAGIC else plain
        number = 0
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, parse(line)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the line"
            raise BadRow(f"{path}:{number}: {field}: {first['msg']}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadRow(f"{path}:{number + 1}: not readable as gzip: {error}") from None


def write_jsonl(path: Path | str, rows: Iterable[BaseModel]) -> None:
    """Write rows as JSON lines, all or nothing."""
    write_text(path, "".join(row.model_dump_json() + "\n" for row in rows))


def write_json(path: Path | str, value: BaseModel | dict) -> None:
    """Write one JSON document, indented, all or nothing."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path | str, text: str) -> None:
    """Write a file through a temporary neighbour, so that no reader sees half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
