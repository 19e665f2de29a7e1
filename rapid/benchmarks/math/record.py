"""Record of a MATH problem."""

from rapid.benchmarks.base import Problem


class MathProblem(Problem):
    """A question of MATH. `answer` is LaTeX; a completion ends in `\\boxed{answer}`."""

    id_field = "unique_id"

    unique_id: str
    problem: str
    answer: str
    solution: str = ""
    subject: str = ""
    level: int | str | None = None

    @property
    def content(self) -> str:
        return self.problem

    @property
    def unusable_reason(self) -> str:
        return "" if self.answer.strip() else "empty answer"
