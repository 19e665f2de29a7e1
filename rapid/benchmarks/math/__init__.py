r"""MATH: questions whose answer is in the last \boxed{} of the completion."""

from collections.abc import Callable

from rapid.benchmarks.base import Benchmark
from rapid.benchmarks.math.made import draw
from rapid.benchmarks.math.record import MathProblem
from rapid.grading.math.grader import STANDBY, MathGrader
from rapid.grading.permissions import NO_PERMISSIONS, GradingPermissions
from rapid.grading.pool import GraderPool


class Math(Benchmark):
    """MATH. The prompt says where the answer goes, since a base model does not know the format."""

    name = "math"
    label = "MATH"
    record = MathProblem
    default_timeout = 10.0
    verdict_seconds = 0.005
    hub = ("nlile/hendrycks-MATH-benchmark", "465bcdb36f5962aa3512891498966df785fc3c18")
    draw = staticmethod(draw)

    def build_grader(
        self, timeout: float, workers: int = 1, permissions: GradingPermissions = NO_PERMISSIONS
    ) -> GraderPool:
        """Build a pool of graders. They run no code of completions, so need no permissions."""
        return GraderPool(self.name, lambda: MathGrader(timeout), workers)

    def lend(self) -> Callable[[bool], None] | None:
        """Lend worker processes of graders to the job that the fork server forks next."""
        return STANDBY.lend()
