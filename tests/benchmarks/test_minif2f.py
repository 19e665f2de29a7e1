"""Tests what MiniF2F needs: an installed Lean, and Mathlib for the hub's problems."""

import json
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
        BENCHMARKS["minif2f"].check_published_grader("hub", NO_PERMISSIONS)


@pytest.mark.parametrize(
    ("headers", "started"),
    [
        (["import Mathlib.Tactic\nopen Nat", "import Mathlib\nopen Real"], ["import Mathlib\n"]),
        (["import B\nimport A", "import C"], ["import B\nimport A\n", "import C\n"]),
        (["", "open Nat"], []),
    ],
)
def test_lean_is_started_with_the_imports_of_a_file_s_problems(
    headers, started, monkeypatch, tmp_path
):
    rows = [
        {"name": f"t{n}", "split": "test", "formal_statement": "1 = 1", "header": header}
        for n, header in enumerate(headers)
    ]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    started_headers = []
    monkeypatch.setattr(minif2f, "ensure_lean", lambda: None)
    monkeypatch.setattr(minif2f, "start_lean", lambda _, header, __: started_headers.append(header))
    BENCHMARKS["minif2f"].check_published_grader(str(tmp_path / "f.jsonl"), NO_PERMISSIONS)
    assert started_headers == started


def test_a_source_that_cannot_be_read_starts_no_lean(monkeypatch):
    monkeypatch.setattr(minif2f, "start_lean", None)
    BENCHMARKS["minif2f"].check_published_grader("/nowhere.jsonl", NO_PERMISSIONS)
