"""Rewriting theorems that were written for an earlier Mathlib."""

import pytest

from rapid.benchmarks.minif2f.modernize import modernize_header, modernize_statement
from rapid.benchmarks.minif2f.record import LeanProblem

OLD_HEADER = """\
import Mathlib.Algebra.BigOperators.Basic
import Mathlib.Data.Real.Basic -- ℝ
import Aesop
import Mathlib.Data.Nat.Digits

set_option maxHeartbeats 400000

open BigOperators
open Real Nat Topology
"""
NEW_HEADER = """\
import Mathlib
import Aesop

set_option maxHeartbeats 400000

open BigOperators
open Real Nat Topology
"""


def test_modules_of_mathlib_become_all_of_mathlib_and_other_lines_stay():
    assert modernize_header(OLD_HEADER) == NEW_HEADER


@pytest.mark.parametrize(
    "header",
    [NEW_HEADER, "", "open Nat\n", "import Mathlib\nimport Aesop\n", "import MathlibExtra\n"],
)
def test_a_header_without_modules_of_mathlib_stays(header):
    assert modernize_header(header) == header


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("∑ k in Finset.range n, k", "∑ k ∈ Finset.range n, k"),
        ("(∏ i₁ in S, f i₁) / ∏ i in T, i", "(∏ i₁ ∈ S, f i₁) / ∏ i ∈ T, i"),
        ("∑ y in (f⁻¹' {0, 7}).toFinset, y", "∑ y ∈ (f⁻¹' {0, 7}).toFinset, y"),
        ("∑ k : ℤ in Finset.Icc 1 12, z ^ k", "∑ k ∈ (Finset.Icc 1 12 : Finset ℤ), z ^ k"),
        ("∑ k:ℤ in f (1, 2) [a, b], k", "∑ k ∈ (f (1, 2) [a, b] : Finset ℤ), k"),
        ("∏ i : ℕ in s, ∑ j : ℤ in t i, j", "∏ i ∈ (s : Finset ℕ), ∑ j ∈ (t i : Finset ℤ), j"),
    ],
)
def test_sums_and_products_over_finite_sets_are_written_with_the_element_sign(old, new):
    assert modernize_statement(old) == new
    assert modernize_statement(new) == new


@pytest.mark.parametrize(
    "statement",
    [
        "∫ x in a..b, f x = 1",
        "∑ k, f k = ∑' n, g n",
        "∑ k ∈ Finset.range n, k",
        "∑ inner, f inner",
        "open Nat in theorem t (k : ℕ) : k = k",
        "∑ k : ℤ in s) = 1",  # not a whole sum
    ],
)
def test_other_texts_stay(statement):
    assert modernize_statement(statement) == statement


@pytest.mark.parametrize("key", ["formal_statement", "statement"])
def test_a_rewritten_problem_is_marked_but_its_file_is_not(key):
    row = {"name": "t", key: "theorem t : ∑ k in {1}, k = 1 := by", "header": NEW_HEADER}
    problem = LeanProblem.model_validate(row)
    assert problem.is_rewritten
    assert problem.formal_statement == "theorem t : ∑ k ∈ {1}, k = 1 := by"
    assert "is_rewritten" not in problem.model_dump()
    assert not LeanProblem.model_validate(problem.model_dump()).is_rewritten
