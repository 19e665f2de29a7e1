"""MBPP+: Python functions, graded by EvalPlus's inputs in a sandbox."""

from rapid.grading.pool import SteadyGrader, steady
from rapid.records import CodeProblem
from rapid.sections import STRICT, Grading


class MbppPlus:
    """The prompt is the published one: a docstring that describes the function and shows a call."""

    name = "mbpp_plus"
    usual_timeout = 20.0
    row_type = CodeProblem

    def grader(self, timeout: float, workers: int = 1, policy: Grading = STRICT) -> SteadyGrader:
        from rapid.grading.code.grader import CodeGrader
        from rapid.grading.code.reference import References

        shared = References()
        return steady(
            self.name,
            lambda: CodeGrader(timeout, references=shared, unsafe=policy.unsafe_sandbox),
            workers,
        )

    def unavailable(self) -> str | None:
        return None


TASK = MbppPlus()
