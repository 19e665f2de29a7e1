"""Schema of evaluation.json and curve.jsonl, checked for consistency."""

from math import comb
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rapid.artifacts.files import ROUNDING, Count, Record, Seconds
from rapid.artifacts.metrics import DiversityMetrics

CURVE = "curve.jsonl"  # in the folder of an evaluation
PASSED = "passed"  # the reason in the verdict on a correct completion
# The reason in the verdict on a completion that is no program, proof or expression.
UNPARSABLE = "unparsable"


class CurvePoint(Record):
    """A row of curve.jsonl: the accuracy of a model that was saved during training (a snapshot).

    The accuracy is measured on the test problems.
    """

    step: Count = Field(description="number of the optimizer step")
    seconds: Seconds = Field(
        description="training time until this step, without the time of saving snapshots"
    )
    pass_at: dict[int, Annotated[float, Field(ge=0, le=1)]] = Field(
        description="pass@k by k, mean over problems"
    )


class ProblemScore(Record):
    """Numbers of graded and of correct completions of one test problem.

    A completion is not graded if its grader crashed.
    """

    id: str = Field(description="id of the problem")
    samples: Count = Field(description="number of graded completions")
    correct: Count = Field(description="number of correct completions")


class ExampleCompletion(Record):
    """The first completion of a test problem. Reports show it, although it is untrusted text."""

    id: str = Field(description="id of the problem")
    problem: str = Field(description="text of the problem")
    completion: str = Field(description="text of the completion")
    reason: str = Field(description="reason of the verdict")


class _BeforeDiversity(Record):
    """The keys of evaluation.json that come before the metrics of diversity."""

    benchmark: str = Field(description="name of the benchmark")
    model: str = Field(description="name of the model in params.yaml")
    algorithm: str = Field(
        description="name with H and changed parameters, or `base`, the model before training"
    )
    seed: int = Field(description="seed of the run")
    status: Literal["ok", "unavailable"] = Field(
        "ok", description="`ok`, or `unavailable` if nothing was evaluated"
    )
    note: str = Field("", description="why the status is `unavailable`")
    pass_at: dict[int, float] = Field(
        default_factory=dict,
        description="pass@k by k, averaged over the problems with at least k graded completions",
    )
    problems: Count = Field(0, description="number of test problems")
    samples: Count = Field(0, description="number of completions sampled per problem")
    temperature: float = Field(1.0, description="sampling temperature")
    top_p: float = Field(1.0, description="top-p of sampling")
    max_completion_length: Count = Field(0, description="largest number of tokens in a completion")
    completion_length: float | None = Field(
        None, ge=0, description="mean number of tokens in a completion"
    )
    reasons: dict[str, Count] = Field(
        default_factory=dict, description="number of verdicts by reason"
    )
    scores: list[ProblemScore] = Field(default_factory=list, description="a row for each problem")
    examples: list[ExampleCompletion] = Field(
        default_factory=list,
        exclude_if=lambda examples: not examples,
        description="first completions of the first problems, if `evaluation.shown` asks for them",
    )


class Evaluation(DiversityMetrics, _BeforeDiversity):
    """evaluation.json: pass@k, estimated without bias from `samples` completions per problem."""

    @property
    def unparsable(self) -> float | None:
        """The share of graded completions that cannot be parsed; None if none was graded."""
        graded = sum(score.samples for score in self.scores)
        return self.reasons.get(UNPARSABLE, 0) / graded if graded else None

    @model_validator(mode="after")
    def _check_consistency(self):
        if self.status != "ok":
            return self
        ids = {score.id for score in self.scores}
        if not ids or not len(ids) == len(self.scores) == self.problems:
            raise ValueError(
                f"problems: {self.problems}, but there are {len(self.scores)} scores of "
                f"{len(ids)} different problems"
            )
        for score in self.scores:
            if not score.correct <= score.samples <= self.samples:
                raise ValueError(
                    f"scores: {score.id} has {self.samples} sampled completions, of which "
                    f"{score.samples} are graded, of which {score.correct} are correct"
                )
        # The number of verdicts that is expected, and the number in `reasons`.
        counts = {
            "verdicts": (self.problems * self.samples, sum(self.reasons.values())),
            "verdicts on correct completions": (
                sum(score.correct for score in self.scores), self.reasons.get(PASSED, 0)
            ),
        }  # fmt: skip
        for kind, (expected, actual) in counts.items():
            if actual != expected:
                raise ValueError(f"reasons: {actual} {kind}, but {expected} are expected")
        for k, share in self.pass_at.items():
            recomputed = mean_pass_at_k(self.scores, k)
            if recomputed is None or not abs(recomputed - share) < ROUNDING:
                raise ValueError(f"pass_at: {share} at k = {k}, but the scores give {recomputed}")
        return self


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Estimate pass@k of a problem: the probability that at least one of k completions is correct.

    The unbiased estimator (Chen et al. 2021, eq. 1) is 1 - C(n - c, k) / C(n, k), the probability
    that k completions, drawn from the n sampled ones without replacement, contain a correct one.

    Args:
        samples: n, the number of completions of the problem; at least k.
        correct: c, the number of correct completions among them.
    """
    return 1 - comb(samples - correct, k) / comb(samples, k)


def mean_pass_at_k(scores: list[ProblemScore], k: int) -> float | None:
    """Return the mean pass@k over problems with at least k graded completions.

    None if there is no such problem.
    """
    estimates = [pass_at_k(s.samples, s.correct, k) for s in scores if s.samples >= k]
    return sum(estimates) / len(estimates) if estimates else None
