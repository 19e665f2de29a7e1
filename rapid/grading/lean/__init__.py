"""Checks proofs with Lean 4: `with LeanChecker(timeout=10) as lean: lean.check(name, ...)`."""

from rapid.grading.lean.checker import BadStatement, LeanChecker
from rapid.grading.lean.install import LeanUnavailable, ensure_lean, find_lean

__all__ = ["BadStatement", "LeanChecker", "LeanUnavailable", "ensure_lean", "find_lean"]
