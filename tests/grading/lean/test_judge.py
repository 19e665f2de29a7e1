"""The Lean judge refuses forged exports, and the author refuses options whose values are computed."""

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker
from tests.grading.lean import attacks, exports
from tests.grading.lean.scripts import change_script


@pytest.fixture(scope="module")
def judge(lean):
    """Return a function `judge(proposition, export)` that returns the reason of the verdict."""

    def ask_judge(proposition: str, export: bytes) -> str:
        goal = {"name": "p1", "statement": f"theorem p1 : {proposition} := by"}
        return lean._processes["judge"].request(goal, 60, export)[0].why

    return ask_judge


@pytest.mark.parametrize("name", exports.EXPORTS_OF_FALSE)
def test_no_export_proves_false(judge, name):
    assert judge("False", exports.EXPORTS_OF_FALSE[name]) == verdicts.FORBIDDEN
    assert judge("True", exports.HONEST) == verdicts.PASSED


@pytest.mark.parametrize("name", exports.BAD_FORMS)
def test_an_export_of_another_form_is_refused(judge, name):
    assert judge("True", exports.BAD_FORMS[name]) == verdicts.FORBIDDEN


@pytest.mark.parametrize("name", exports.FIELDS)
def test_a_projection_of_a_missing_field_is_refused(judge, name):
    assert judge("True", exports.FIELDS[name]) == verdicts.FORBIDDEN


def test_an_export_proves_only_its_own_statement(judge):
    assert judge("True", exports.HONEST) == verdicts.PASSED
    assert judge("1 = 1", exports.HONEST) == verdicts.FORBIDDEN


def test_an_author_cannot_redefine_the_constants_of_a_statement(judge):
    """The statement has its own `p1.match_1`, whatever the author declares."""
    statement = "(match 5 with | 0 => 1 | _ => 2) = 1"
    assert judge(statement, exports.MATCH_REDEFINED) == verdicts.FORBIDDEN


@pytest.mark.parametrize("claim", ["= 2", "= 1"])
def test_a_statement_may_have_constants_of_its_own(lean, claim):
    statement = f"theorem p1 (n : Nat) : (match n + 1 with | 0 => 1 | _ => 2) {claim} := by\n  "
    assert lean.check("p1", statement, "rfl").reward == float(claim == "= 2")
    assert lean.check("p1", statement, "exact Eq.refl _").reward == float(claim == "= 2")


def test_a_proved_lemma_may_have_any_name(judge):
    """A lemma is accepted if the kernel accepts it, even under the name of an axiom."""
    honest = exports.prove_by_declaration("theorem", ("sorryAx\0", 3, ""), type=("True",))
    assert judge("True", honest) == verdicts.PASSED
    assert judge("False", honest) == verdicts.FORBIDDEN


def test_each_check_has_a_limit_of_heartbeats_of_its_own(monkeypatch, tmp_path):
    """Heartbeats are Lean's count of the kernel's allocations. All checks here together exceed the limit."""
    fewer_heartbeats = [("HEARTBEATS = 200000000", "HEARTBEATS = 3000", 1)]
    change_script("frontend.js", fewer_heartbeats, tmp_path, monkeypatch)

    builder = exports.ExportBuilder()
    true, proof = builder.add_constant("True"), builder.add_constant("True", "intro")
    for _ in range(300):
        identity = builder.add_term("lambda", true, builder.add_term("bvar", 0))
        proof = builder.add_application(identity, proof)
    export = builder.encode_proof(proof)
    goal = {"name": "p1", "statement": "theorem p1 : True := by"}
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()
        judge = checker._processes["judge"]
        answers = [judge.request(goal, 60, export)[0].why for _ in range(10)]
    assert answers == [verdicts.PASSED] * 10


def test_operations_that_the_kernel_computes_cannot_be_redefined(image):
    reasons_given = {}
    with LeanChecker(timeout=60, header="prelude\nimport Init.Prelude\n") as checker:
        checker.wait_ready()
        for operation, result in exports.COMPUTED.items():
            goal = {"name": "p1", "statement": f"theorem p1 : @Eq Nat {result} 77 :="}
            export = exports.redefine_operation(operation, str(result))
            answer, _ = checker._processes["judge"].request(goal, 60, export)
            reasons_given[operation] = answer.why
    assert reasons_given == dict.fromkeys(exports.COMPUTED, verdicts.FORBIDDEN)


OPTIONS = [
    "simp (maxSteps := 500)", "simp (config := { maxSteps := 500, decide := true })",
    "simp +decide -zeta (maxSteps := 700) (decide := false)", "omega (config := {})",
    "first | rw (occs := .pos [1]) [Nat.add_comm] | rfl", "decide (config := { kernel := true })",
    "first | rw (occs := .all) [Nat.add_comm] | rfl",
]  # fmt: skip


@pytest.mark.parametrize("proof", OPTIONS)
def test_options_with_literal_values_are_accepted(lean, proof):
    assert lean.check("p1", "theorem p1 : 1 + 1 = 2 := by\n  ", proof).reason == verdicts.PASSED


@pytest.mark.parametrize("program", attacks.PROGRAMS)
@pytest.mark.parametrize("place", ["simp", "simp's structure", "a last resort"])
def test_options_with_computed_values_are_refused(lean, program, place):
    """The statement is true, so the proof would pass without the option."""
    proof = attacks.PLACES[place].format(attacks.PROGRAMS[program])
    verdict = lean.check("p1", "theorem p1 : 1 + 1 = 2 := by\n  ", f"{proof} <;> rfl")
    assert verdict.reason in (verdicts.FORBIDDEN, verdicts.UNPARSABLE)
