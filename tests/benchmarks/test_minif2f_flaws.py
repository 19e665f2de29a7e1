"""Known flaws of miniF2F's statements: the list, how a flaw is found, and proofs that it is one."""

import json
from random import Random

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.minif2f import list_flaws
from rapid.benchmarks.minif2f.flaws import find_flaw, load_flaws, normalize
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading.grader import BadProblem

# Statements of two copies of miniF2F -> the kind of their flaw; "" for corrected statements.
STATEMENTS = {
    "theorem mathd_algebra_314 (n : ℕ) (h₀ : n = 11) : (1 / 4) ^ (n + 1) * 2 ^ (2 * n) = 1 / 4 := by":
        "trivial",
    "theorem mathd_algebra_314\n  (n : ℕ)\n  (h₀ : n = 11) :\n  (1 / 4)^(n + 1) * 2^(2 * n) = 1 / 4 := sorry":
        "trivial",
    "theorem mathd_algebra_314 (n : ℕ) (h₀ : n = 11) : (1 / 4 : ℝ) ^ (n + 1) * 2 ^ (2 * n) = 1 / 4 := by":
        "",
    "theorem mathd_numbertheory_35 (S : Finset ℕ) (h₀ : ∀ n : ℕ, n ∣ Nat.sqrt 196) : (∑ k in S, k) = 24":
        "vacuous",
    "theorem mathd_numbertheory_35 (S : Finset ℕ) (h₀ : ∀ n ∈ S, n ∣ Nat.sqrt 196) : (∑ k ∈ S, k) = 24":
        "unprovable",
    "theorem mathd_numbertheory_35 (S : Finset ℕ) (h₀ : ∀ n : ℕ, n ∈ S ↔ n ∣ Nat.sqrt 196) : (∑ k ∈ S, k) = 24":
        "",
    "theorem induction_nfactltnexpnm1ngt3 (n : ℕ) (h₀ : 3 ≤ n) : n! < n^(n - 1) := by": "malformed",
    "theorem induction_nfactltnexpnm1ngt3 (n : ℕ) (h₀ : 3 ≤ n) : n ! < n ^ (n - 1) := by": "",
    "theorem imo_1982_p1 (f : ℕ → ℕ) (h₀ : ∀ m n, f (m+n) - f m - f n = 0 ∨ f (m + n) - f m - f n = 1)":
        "unprovable",
}  # fmt: skip

# Name -> a theorem that the flaw follows from, and its proof. Nat.Prime and real numbers are not in
# the core library, so the theorems are about as much of the statement as the flaw needs.
REFUTATIONS = {
    "aime_1994_p3": (
        "¬ ∀ (x : Int) (f : Int → Int), f x + f (x - 1) = x ^ 2 → f 19 = 94 → f 94 % 1000 = 561",
        "intro h\n"
        "have := h 0 (fun y => if y = 19 then 94 else 0) (by decide) (by decide)\n"
        "revert this; decide",
    ),
    "algebra_ineq_nto1onlt2m1on": (
        "¬ ∀ n : Nat, n ^ (1 / n) < 2 - 1 / n",
        "intro h; exact absurd (h 1) (by decide)",
    ),
    "imo_1967_p3": (
        "∃ k m : Nat, k = 5 ∧ m = 1 ∧ k + m + 1 = 7 ∧ 2 + 1 < k + m + 1 ∧ ¬ (1 * (1 + 1)) * "
        "(2 * (2 + 1)) ∣ ((m + 1) * (m + 2)) * ((m + 2) * (m + 3)) - k * (k + 1)",
        "exact ⟨5, 1, by decide⟩",
    ),
    "imo_1982_p1": (
        "¬ ∀ f : Nat → Nat, (∀ m n, (0 < m ∧ 0 < n) → f (m + n) - f m - f n = 0 ∨ "
        "f (m + n) - f m - f n = 1) → f 2 = 0 → 0 < f 3 → f 9999 = 3333 → f 1982 = 660",
        "intro h\n"
        "have := h (fun n => if n = 1982 then 661 else n / 3)\n"
        "  (by intro m n _; simp only []; split <;> split <;> split <;> omega)\n"
        "  (by decide) (by decide) (by decide)\n"
        "revert this; decide",
    ),
    "mathd_algebra_289": (
        "∀ k m n : Nat, k ^ 2 - m * k + n = 0 → n = 0",
        "intro k m n h; omega",
    ),
    "mathd_algebra_314": (
        "∀ n : Nat, (1 / 4) ^ (n + 1) * 2 ^ (2 * n) = 0 ∧ 1 / 4 = 0",
        "intro n; simp [Nat.pow_succ]",
    ),
    "mathd_numbertheory_247": ("∀ n : Nat, ¬ (3 * n) % 2 = 11", "intro n; omega"),
    "mathd_numbertheory_35": ("¬ ∀ n : Nat, n ∣ 14", "intro h; exact absurd (h 0) (by decide)"),
    "mathd_numbertheory_618": (
        "¬ ∀ (n : Nat) (p : Nat → Nat), (∀ x, p x = x ^ 2 - x + 41) → "
        "1 < Nat.gcd (p n) (p (n + 1)) → 41 ≤ n",
        "intro h\n"
        "exact absurd (h 0 (fun x => x ^ 2 - x + 41) (fun _ => rfl) (by decide)) (by decide)",
    ),
}


def name_of(statement: str) -> str:
    return statement.split()[1]


def test_listed_flaws_are_complete():
    flaws = load_flaws()
    assert len({flaw.name for flaw in flaws}) == 30
    assert all(flaw.why and flaw.source for flaw in flaws)
    assert len({(flaw.name, flaw.kind) for flaw in flaws}) == len(flaws)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_flaw_is_found_in_the_copies_that_have_it(statement):
    flaw = find_flaw(name_of(statement), statement)
    assert (flaw.kind if flaw else "") == STATEMENTS[statement]
    problem = LeanProblem(name=name_of(statement), formal_statement=statement)
    assert problem.flaw.partition(":")[0] == STATEMENTS[statement]


def test_flaw_of_another_theorem_is_not_found():
    statement = next(iter(STATEMENTS))
    assert find_flaw("mathd_algebra_315", statement) is None


def test_made_theorems_have_no_flaw():
    draw = BENCHMARKS["minif2f"].draw
    assert not any(draw(Random(seed), f"made {seed}").problem.flaw for seed in range(50))


def test_factorial_differs_from_a_name_that_ends_in_an_exclamation_mark():
    assert normalize("n  ! ≤  n") == normalize("n !≤n") != normalize("n! ≤ n")


def test_command_lists_the_flawed_problems_of_a_file(tmp_path, capsys):
    sound = "theorem a : 1 = 1 := by"
    statements = {"mathd_algebra_314": next(iter(STATEMENTS)), "a": sound}
    rows = [
        {"name": name, "split": "test", "formal_statement": text}
        for name, text in statements.items()
    ]
    rows.append({"name": "b", "formal_statement": "theorem b : 2 = 2 := by"})
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert list_flaws.main([str(tmp_path / "rows.jsonl")]) == 0
    flawed, *totals = capsys.readouterr().out.splitlines()
    assert flawed.startswith("mathd_algebra_314 (test): trivial: 1 / 4 is the natural number 0")
    assert totals == [
        "split test: 1 of 2 statements have known flaws",
        "no split: 0 of 1 statements have known flaws",
    ]
    with pytest.raises(SystemExit):
        list_flaws.main([str(tmp_path / "none.jsonl")])


def test_malformed_statements_are_unusable_and_others_are_not():
    for statement, kind in STATEMENTS.items():
        problem = LeanProblem(name=name_of(statement), formal_statement=statement)
        assert bool(problem.unusable_reason) == (kind == "malformed")


@pytest.mark.slow
def test_lean_refuses_a_variable_that_is_not_declared():
    statement = "theorem t (n : Nat) (h : 3 ≤ n) : n! < n^(n - 1) := by"
    with (
        BENCHMARKS["minif2f"].build_grader(60) as grader,
        pytest.raises(BadProblem, match="identifier `n!`"),
    ):
        grader.grade(LeanProblem(name="t", formal_statement=statement), "omega")


@pytest.mark.slow
def test_lean_proves_that_statements_are_flawed():
    names = {flaw.name for flaw in load_flaws()}
    with BENCHMARKS["minif2f"].build_grader(60) as grader:
        for name, (statement, proof) in REFUTATIONS.items():
            assert name in names
            problem = LeanProblem(name="refuted", formal_statement=f"theorem refuted : {statement}")
            assert grader.grade(problem, proof).reward == 1, name
