"""What an evaluation writes."""

from typing import Literal

from pydantic import Field

from rapid.artifacts.files import Record


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
    """evaluation.json: pass@k by the unbiased estimator over `samples` completions per problem."""

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
    completion_length: float | None = Field(None, description="mean tokens per completion")
    reasons: dict[str, int] = Field(default_factory=dict, description="verdicts by reason")
    scores: list[ProblemScore] = Field(default_factory=list)
