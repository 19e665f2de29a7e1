"""`rapid lean-setup`: install Lean and see whether it judges rightly."""

from typing import TextIO

from rapid.grading.lean.checker import LeanChecker
from rapid.grading.lean.install import KINDS, MATHLIB_ADVICE, Backend, LeanUnavailable, ensure_lean

TRUE = ("theorem t (a b : Nat) (h : a < b) : a + 1 ≤ b := by", "omega")
FALSE = ("theorem t : (1 : Nat) = 2 := by", "set_option debug.skipKernelTC true in decide +kernel")


def set_up_lean(stream: TextIO) -> int:
    """Install Lean and print how it judges a truth and a falsehood; return the exit status."""
    try:
        backend = ensure_lean(compares_all=True)
        judgements, seconds = [], []
        for _ in range(2):  # the first start may leave an image of its memory to the second
            with LeanChecker(timeout=60, backend=backend) as lean:
                seconds.append(lean.wait_ready())
                judgements += [lean.check("t", *TRUE).reward, lean.check("t", *FALSE).reward]
    except LeanUnavailable as error:
        print(f"Lean is not available: {error}", file=stream)
        return 1
    try:
        start_mathlib(backend)
        mathlib = "found"
    except LeanUnavailable as error:
        missing = "unknown module prefix" in str(error)
        mathlib = f"not found. {MATHLIB_ADVICE}" if missing else f"cannot be used: {error}"
    works = judgements == [1.0, 0.0, 1.0, 0.0]
    print(f"Lean        {backend.version}, {KINDS[backend.kind]}", file=stream)
    print(f"folder      {backend.folder}", file=stream)
    print(f"start-up    {seconds[0]:.1f} s, then {seconds[1]:.1f} s", file=stream)
    print(f"Mathlib     {mathlib}", file=stream)
    print(f"self-check  {'passed' if works else 'FAILED: it judges wrongly'}", file=stream)
    return 0 if works else 1


def start_mathlib(backend: Backend, unsafe: bool = False) -> None:
    """Raise LeanUnavailable where problems whose header imports Mathlib cannot be graded."""
    header = "import Mathlib\n"
    with LeanChecker(timeout=60, header=header, backend=backend, unsafe=unsafe) as lean:
        lean.wait_ready()
