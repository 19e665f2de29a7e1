"""Tests what MiniF2F needs: an installed Lean, and Mathlib for the hub's problems."""

import shutil

import pytest

from rapid.benchmarks import BENCHMARKS, minif2f
from rapid.grading.lean import LeanUnavailable
from rapid.grading.permissions import NO_PERMISSIONS


def test_without_lean_the_benchmark_is_unavailable_with_the_reason(monkeypatch):
    def raise_unavailable():
        raise LeanUnavailable("npm cannot reach its registry")

    monkeypatch.setattr(minif2f, "ensure_lean", raise_unavailable)
    assert BENCHMARKS["minif2f"].explain_unavailable() == "npm cannot reach its registry"


def test_the_hub_s_problems_need_mathlib():
    if shutil.which("lean"):
        pytest.skip("a native Lean may have Mathlib")
    with pytest.raises(LeanUnavailable, match=r"imports Mathlib: .* To grade Mathlib problems"):
        BENCHMARKS["minif2f"].check_hub_grader(NO_PERMISSIONS)
