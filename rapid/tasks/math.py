r"""MATH: questions whose answer stands in the last \boxed{} of the completion."""

from rapid.grading.base import CachedGrader
from rapid.records import MathProblem


class Math:
    """The prompt says where the answer goes: a base model has not been told."""

    name = "math"
    row_type = MathProblem

    def prompt(self, problem: MathProblem) -> str:
        return f"Problem: {problem.problem}\nSolution, ending in \\boxed{{}}:\n"

    def grader(self, timeout: float) -> CachedGrader:
        from rapid.grading.boxed import MathGrader

        return CachedGrader(MathGrader(timeout))

    def unavailable(self) -> str | None:
        return None


TASK = Math()
