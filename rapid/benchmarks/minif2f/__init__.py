"""MiniF2F: theorems in Lean 4. A completion is a proof, or repeats the theorem with its proof."""

import re
from collections.abc import Callable
from random import Random

from rapid.artifacts.files import BadInput
from rapid.benchmarks.base import Benchmark
from rapid.benchmarks.minif2f.made import draw
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.benchmarks.published import load_source
from rapid.grading.lean import LeanUnavailable, ensure_lean, standby
from rapid.grading.lean.grader import LeanGrader
from rapid.grading.lean.install import describe_kernel_bugs
from rapid.grading.lean.selfcheck import MATHLIB, start_lean
from rapid.grading.permissions import NO_PERMISSIONS, GradingPermissions
from rapid.grading.pool import GraderPool

# Number of theorems that are proved to warm up a grader. After these, V8 (node's JavaScript engine)
# has compiled the functions of the WebAssembly Lean that such proofs use.
WARM_UP_THEOREMS = 16
IMPORT = re.compile(r"^import .*\n", re.MULTILINE)


class MiniF2F(Benchmark):
    """MiniF2F. A theorem may have a header, the Lean code before it.

    A header that imports Mathlib needs a native Lean with Mathlib.
    """

    name = "minif2f"
    label = "MiniF2F"
    record = LeanProblem
    completion_noun = "proofs"
    default_timeout = 20.0
    verdict_seconds = 2.0  # proofs that use Mathlib take seconds
    hub = ("cat-searcher/minif2f-lean4", "70a1249ce240667f6bcdd1ccd62f847f0e065d57")
    unsafe_settings = frozenset({"unsafe_lean"})
    draw = staticmethod(draw)

    def build_grader(
        self, timeout: float, workers: int = 1, permissions: GradingPermissions = NO_PERMISSIONS
    ) -> GraderPool:
        return GraderPool(self.name, lambda: LeanGrader(timeout, permissions.unsafe_lean), workers)

    def warm_up(self, grader: GraderPool, problems: list[LeanProblem]) -> None:
        """Start Lean, elaborate the problems' statements, and grade proofs of other theorems.

        After this, Lean is equally fast whether its process is new or has served an earlier job.
        If a problem has a header, such as `import Mathlib`, nothing more is done than to start one
        grader's Lean with this header.
        """
        if any(problem.header for problem in problems):
            super().warm_up(grader, problems)
            return
        for problem in problems:
            grader.prepare(problem)
        drawn = [draw(Random(f"rehearsal {n}"), id="rehearsal") for n in range(WARM_UP_THEOREMS)]
        grader.warm_up(
            [
                (problem, text)
                for problem, correct, mistakes in drawn
                for text in (correct, *mistakes)
            ]
        )

    def lend(self) -> Callable[[bool], None] | None:
        return standby.lend()

    def explain_unavailable(self) -> str | None:
        try:
            ensure_lean()
        except LeanUnavailable as reason:
            return str(reason)
        return None

    def describe_known_bugs(self) -> str:
        return describe_kernel_bugs(ensure_lean())

    def check_published_grader(self, source: str, permissions: GradingPermissions) -> None:
        """Start Lean with the imports of the source's problems: of the hub's, Mathlib."""
        for imports in [MATHLIB] if source == "hub" else self._list_imports(source):
            start_lean(ensure_lean(), imports, permissions.unsafe_lean)

    def _list_imports(self, source: str) -> list[str]:
        """Return the different import lines of a file's or a folder's headers, without none."""
        try:
            parts = load_source(self, source).parts
        except BadInput:
            return []
        headers = {problem.header for problems in parts.values() for problem in problems}
        return sorted({"".join(IMPORT.findall(f"{header}\n")) for header in headers} - {""})
