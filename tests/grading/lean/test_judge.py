"""The Lean judge on exports that no honest author writes, and the author on options."""

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker, launch
from tests.grading.lean import attacks, exports
from tests.grading.lean.scripts import change_script


@pytest.fixture(scope="module")
def judge(lean):
    """`judge(proposition, export)`: why an export is refused, or that it passed."""

    def ask(proposition: str, export: bytes) -> str:
        goal = {"name": "p1", "statement": f"theorem p1 : {proposition} := by"}
        return lean._processes["judge"].request(goal, 60, export)[0].why

    return ask


@pytest.mark.parametrize("label", exports.EXPORTS_OF_FALSE)
def test_no_export_proves_false(judge, label):
    assert judge("False", exports.EXPORTS_OF_FALSE[label]) == verdicts.FORBIDDEN
    assert judge("True", exports.HONEST) == verdicts.PASSED


@pytest.mark.parametrize("label", exports.BAD_FORMS)
def test_an_export_of_another_form_is_refused(judge, label):
    assert judge("True", exports.BAD_FORMS[label]) == verdicts.FORBIDDEN


@pytest.mark.parametrize("label", exports.FIELDS)
def test_no_field_is_taken_that_is_none(judge, label):
    assert judge("True", exports.FIELDS[label]) == verdicts.FORBIDDEN


def test_an_export_proves_what_it_was_given_for_alone(judge):
    assert judge("True", exports.HONEST) == verdicts.PASSED
    assert judge("1 = 1", exports.HONEST) == verdicts.FORBIDDEN


def test_a_statement_means_what_its_own_constants_mean(judge):
    """`p1.match_1` is the statement's. An author that declares another one changes nothing."""
    statement = "(match 5 with | 0 => 1 | _ => 2) = 1"
    assert judge(statement, exports.MATCH_REDEFINED) == verdicts.FORBIDDEN


@pytest.mark.parametrize("claim", ["= 2", "= 1"])
def test_a_statement_may_have_constants_of_its_own(lean, claim):
    statement = f"theorem p1 (n : Nat) : (match n + 1 with | 0 => 1 | _ => 2) {claim} := by\n  "
    assert lean.check("p1", statement, "rfl").reward == float(claim == "= 2")
    assert lean.check("p1", statement, "exact Eq.refl _").reward == float(claim == "= 2")


def test_a_constant_of_a_strange_name_is_that_constant(judge):
    """Exact names are no walls of their own: a proved lemma may be called what it likes."""
    honest = exports.declared("theorem", ("sorryAx\0", 3, ""), type=("True",))
    assert judge("True", honest) == verdicts.PASSED
    assert judge("False", honest) == verdicts.FORBIDDEN


def test_a_check_leaves_its_effort_to_no_other(monkeypatch, tmp_path):
    """Lean counts what its kernel allocates: here a limit that the checks reach together."""
    fewer = [("HEARTBEATS = 200000000", "HEARTBEATS = 3000", 1)]
    change_script("frontend.js", fewer, tmp_path, monkeypatch)

    lines = exports.Lines()
    true, proof = lines.const("True"), lines.const("True", "intro")
    for _ in range(300):
        identity = lines.term("lambda", true, lines.term("bvar", 0))
        proof = lines.app(identity, proof)
    export = lines.proof(proof)
    goal = {"name": "p1", "statement": "theorem p1 : True := by"}
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()
        judge = checker._processes["judge"]
        answers = [judge.request(goal, 60, export)[0].why for _ in range(10)]
    assert answers == [verdicts.PASSED] * 10


def test_what_the_kernel_computes_by_itself_has_no_other_definition(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "image_path", lambda *_: tmp_path / "image")
    reasons_given = {}
    with LeanChecker(timeout=60, header="prelude\nimport Init.Prelude\n") as small:
        small.wait_ready()
        for operation, result in exports.COMPUTED.items():
            goal = {"name": "p1", "statement": f"theorem p1 : @Eq Nat {result} 77 :="}
            export = exports.redefined(operation, str(result))
            answer, _ = small._processes["judge"].request(goal, 60, export)
            reasons_given[operation] = answer.why
    assert reasons_given == dict.fromkeys(exports.COMPUTED, verdicts.FORBIDDEN)


OPTIONS = [
    "simp (maxSteps := 500)", "simp (config := { maxSteps := 500, decide := true })",
    "simp +decide -zeta (maxSteps := 700) (decide := false)", "omega (config := {})",
    "first | rw (occs := .pos [1]) [Nat.add_comm] | rfl", "decide (config := { kernel := true })",
    "first | rw (occs := .all) [Nat.add_comm] | rfl",
]  # fmt: skip


@pytest.mark.parametrize("proof", OPTIONS)
def test_options_with_literals_are_let_through(lean, proof):
    assert lean.check("p1", "theorem p1 : 1 + 1 = 2 := by\n  ", proof).reason == verdicts.PASSED


@pytest.mark.parametrize("program", attacks.PROGRAMS)
@pytest.mark.parametrize("place", ["simp", "simp's structure", "a last resort"])
def test_the_value_of_an_option_is_not_evaluated(lean, program, place):
    """The statement is true: but for the option it would be proved."""
    proof = attacks.PLACES[place].format(attacks.PROGRAMS[program])
    verdict = lean.check("p1", "theorem p1 : 1 + 1 = 2 := by\n  ", f"{proof} <;> rfl")
    assert verdict.reason in (verdicts.FORBIDDEN, verdicts.UNPARSABLE)
