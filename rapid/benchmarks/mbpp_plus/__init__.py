"""MBPP+: Python functions, run in a sandbox on EvalPlus's test inputs."""

from rapid.benchmarks.base import Benchmark
from rapid.benchmarks.mbpp_plus.made import draw
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading import limits
from rapid.grading.permissions import NO_PERMISSIONS, GradingPermissions
from rapid.grading.pool import GraderPool
from rapid.grading.result_cache import ResultCache


class MbppPlus(Benchmark):
    """MBPP+. The prompt is the published prompt: a docstring with the task and an example call."""

    name = "mbpp_plus"
    label = "MBPP+"
    record = CodeProblem
    completion_noun = "programs"
    default_timeout = 20.0
    verdict_seconds = 0.05
    hub = ("evalplus/mbppplus", "b2d74c91837c3f2a20c1299ae98133cbe7cfa077")
    unsafe_settings = frozenset({"unsafe_sandbox"})
    # The output of `python -m rapid.benchmarks.mbpp_plus.weak_tests` for EvalPlus's release v0.1.0.
    # The command finds none in v0.2.0, which is the hub's dataset.
    weak_problems = {"Mbpp/115": "True, 1"}  # noqa: RUF012
    draw = staticmethod(draw)

    def from_hub(self, row: dict) -> dict:
        from rapid.benchmarks.mbpp_plus.published import from_hub

        return from_hub(row)

    def build_grader(
        self, timeout: float, workers: int = 1, permissions: GradingPermissions = NO_PERMISSIONS
    ) -> GraderPool:
        # Imported here because EvalPlus takes a second to import.
        from rapid.grading.code.grader import CodeGrader
        from rapid.grading.code.sandbox import Sandbox

        unsafe = permissions.unsafe_sandbox
        references = ResultCache(limits.MAX_REFERENCES)  # shared by the graders
        return GraderPool(
            self.name, lambda: CodeGrader(timeout, Sandbox(unsafe=unsafe), references), workers
        )
