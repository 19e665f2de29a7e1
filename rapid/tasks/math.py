r"""MATH: questions whose answer stands in the last \boxed{} of the completion."""

from rapid.grading.pool import SteadyGrader, steady
from rapid.records import MathProblem
from rapid.sections import STRICT, Grading


class Math:
    """The prompt says where the answer goes: a base model has not been told."""

    name = "math"
    usual_timeout = 10.0
    row_type = MathProblem

    def grader(self, timeout: float, workers: int = 1, policy: Grading = STRICT) -> SteadyGrader:
        from rapid.grading.math.grader import MathGrader

        return steady(self.name, lambda: MathGrader(timeout), workers)

    def unavailable(self) -> str | None:
        return None


TASK = Math()
