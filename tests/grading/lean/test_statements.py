"""Forms of statements: they are supported, or refused with a message before any proof is checked."""

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading import verdicts
from rapid.grading.lean import BadStatement

STATEMENT_END = "(n : Nat) : n + 0 = n := by\n  "
NAMES = ["a.b", "Nat.foo", "«12.34».foo", "a.«b».c", "«a b»", "a.b.c.d", "t'"]
PREFIXES = [
    "open Nat in\n",
    "open Nat in open scoped Classical in ",
    "set_option maxRecDepth 1000 in\n",
    "variable (m : Nat := 0) in\n",
    "universe u in ",
    "@[simp] ",
    "/-- Not := by -/ @[simp] ",
    '@[deprecated Nat.add_zero (since := "2020")] ',
]
STATEMENTS = {name: f"theorem {name} {STATEMENT_END}" for name in NAMES}
ACCEPTED = [
    *STATEMENTS.items(),
    *(("t", f"{prefix}theorem t {STATEMENT_END}") for prefix in PREFIXES),
    ("a.b", f"open Nat in\n@[simp] protected theorem a.b {STATEMENT_END}"),
    ("t", "theorem t (native : Nat) : native + 0 = native := by\n  "),
    ("t", "theorem t.{u} (α : Type u) (a : α) : a = a := by\n  "),
]
VERDICTS = {
    "rfl": verdicts.PASSED,
    "skip": verdicts.WRONG_ANSWER,
    "exact absurd (by decide +kernel : (1 : Nat) = 2) (by decide)": verdicts.WRONG_ANSWER,
    "exact f\nwhere @[simp] f : _ = _ := rfl": verdicts.FORBIDDEN,
    "sorry": verdicts.FORBIDDEN,
    "native_decide": verdicts.FORBIDDEN,
    "rfl\naxiom x : False": verdicts.UNPARSABLE,
    "rfl\nin theorem q : True := trivial": verdicts.UNPARSABLE,
    "exact (": verdicts.UNPARSABLE,
}
REFUSED = {
    f"variable (m : Nat)\ntheorem t {STATEMENT_END}": "more than one command: those before it belong in",
    f"namespace X\ntheorem t {STATEMENT_END}": "more than one command",
    f"theorem u {STATEMENT_END}rfl\ntheorem t {STATEMENT_END}": "more than one command",
    f"private theorem t {STATEMENT_END}": "declares no theorem of this name",
    f"theorem u {STATEMENT_END}": "declares no theorem of this name",
    f"example {STATEMENT_END}": "declares no theorem of this name",
    f"def t {STATEMENT_END}": r"declares no theorem of this name \(definition\)",
    f"noncomputable theorem t {STATEMENT_END}": "subsumes 'noncomputable'",
    f"protected theorem t {STATEMENT_END}": "must be in a namespace",
    f"lemma t {STATEMENT_END}": "unexpected identifier",
    "theorem t (x : ℝ) : x = x := by\n  ": "Unknown identifier",
}


@pytest.mark.parametrize(("name", "statement"), ACCEPTED)
def test_proofs_of_any_accepted_statement_get_their_verdicts(lean, name, statement):
    reasons = {proof: lean.check(name, statement, proof).reason for proof in VERDICTS}
    assert reasons == VERDICTS
    assert lean.check(name, statement, "rfl").reason == verdicts.PASSED


@pytest.mark.parametrize("statement", REFUSED)
def test_an_unsupported_statement_is_refused_with_a_message(lean, statement):
    message = f"^the statement of t is not accepted by Lean .*: .*{REFUSED[statement]}"
    with pytest.raises(BadStatement, match=message):
        lean.elaborate_statement("t", statement)


def test_a_statement_that_a_completion_repeats_is_removed():
    """The repeated statement is recognized, whatever stands before the theorem's name."""
    with BENCHMARKS["minif2f"].build_grader(60) as grader:
        for name, statement in ACCEPTED:
            problem = LeanProblem(name=name, formal_statement=statement)
            for completion in ("rfl", f"```lean\n{statement}rfl\n```"):
                assert grader.grade(problem, completion).reason == verdicts.PASSED
