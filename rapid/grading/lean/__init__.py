"""Proofs checked by Lean 4: `with LeanChecker(timeout=10) as lean: lean.check(name, ...)`."""

from rapid.grading.lean.checker import REASONS, BadStatement, LeanChecker
from rapid.grading.lean.install import Backend, LeanUnavailable, ensure_lean, find_lean
from rapid.grading.lean.selfcheck import setup

__all__ = [
    "REASONS",
    "Backend",
    "BadStatement",
    "LeanChecker",
    "LeanUnavailable",
    "ensure_lean",
    "find_lean",
    "setup",
]
