"""The command `rapid lean-setup`: installs Lean, tests its judgements, and looks for Mathlib."""

from rapid.grading.lean.checker import LeanChecker
from rapid.grading.lean.install import KINDS, MATHLIB_ADVICE, Backend, LeanUnavailable, ensure_lean

MATHLIB = "import Mathlib\n"  # a header
# A true statement with a proof, and a false one with a proof that avoids the kernel's check in the
# process that elaborates proofs, but not in the one that judges them (`checker`).
TRUE = ("theorem t (a b : Nat) (h : a < b) : a + 1 ≤ b := by", "omega")
FALSE = ("theorem t : (1 : Nat) = 2 := by", "set_option debug.skipKernelTC true in decide +kernel")


def set_up_lean() -> int:
    """Install Lean, let it judge a true and a false statement, and return the exit status."""
    try:
        backend = ensure_lean(verify_all=True)
        faults: list[str] = []
        seconds = []
        for _ in range(2):  # the second start may use the image of memory that the first one wrote
            with LeanChecker(timeout=60, backend=backend) as lean:
                seconds.append(lean.wait_ready())
                for statement_and_proof, is_true in ((TRUE, True), (FALSE, False)):
                    verdict = lean.check("t", *statement_and_proof)
                    if verdict.reward != is_true:
                        faults.append(
                            f"rejected the proof of a true statement ({verdict.reason})"
                            if is_true
                            else "accepted a proof of a false statement"
                        )
    except LeanUnavailable as error:
        print(f"Lean is not available: {error}")
        return 1
    try:
        start_lean(backend, MATHLIB)
        mathlib = "found"
    except LeanUnavailable as error:
        # Lean's message if LEAN_PATH has no Mathlib.
        missing = "unknown module prefix" in str(error)
        mathlib = f"not found. {MATHLIB_ADVICE}" if missing else f"cannot be used: {error}"
    result = "passed"
    if faults:
        result = (
            f"FAILED: Lean {' and '.join(dict.fromkeys(faults))}. Run this command again; if this "
            "is repeated, do not grade with this Lean"
        )
    print(f"Lean        {backend.version}, {KINDS[backend.kind]}")
    print(f"folder      {backend.folder}")
    print(f"start-up    {seconds[0]:.1f} s the first time, {seconds[1]:.1f} s the second time")
    print(f"Mathlib     {mathlib}")
    print(f"self-check  {result}")
    return 1 if faults else 0


def start_lean(backend: Backend, header: str, unsafe: bool = False) -> None:
    """Start Lean with a header. Raise LeanUnavailable if that fails."""
    with LeanChecker(timeout=60, header=header, backend=backend, unsafe=unsafe) as lean:
        lean.wait_ready()
