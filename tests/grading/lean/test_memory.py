"""Lean's memory is restored after code of a proof has run in it, and this code is detected."""

import json

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker, launch
from tests.grading.lean import attacks
from tests.grading.lean.scripts import change_script, run_node

STATEMENT = "theorem p1 : (1 : Nat) = 2 := by\n  "
TRUE_PROOF = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
# Changes of the author, after which it lets proofs run any code. Its messages are then how often the
# interpreter was entered, how many declarations were added unchecked, and the errors.
REPORTING_AUTHOR = [
    (r"const (CODE|OPTIONS) = new Set\(\[[^]]*\]\)", r"const \1 = new Set()", 2),
    (
        r"Refusal\('wrong_answer'\)",
        "Refusal('wrong_answer', [`${lean.rt.noticed.evaluated}`, "
        "`${lean.rt.noticed.unchecked.length}`, ...messages.map((m) => m.text())])",
        1,
    ),
]


@pytest.fixture(scope="module")
def checker(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        change_script("author.js", REPORTING_AUTHOR, tmp_path_factory.mktemp("author"), monkeypatch)
        with LeanChecker(timeout=60) as checker:
            checker.wait_ready()
            yield checker


def request_refusal(checker: LeanChecker, proof: str, checked: bool) -> tuple[str, list[str]]:
    """Return the reason why the author refuses a proof, and its messages."""
    request = {"name": "p1", "statement": STATEMENT, "proof": proof, "checked": checked}
    answer, export = checker._processes["author"].request(request, 60)
    assert not export
    return answer.why, answer.messages


def describe_refusal(checker: LeanChecker, proof: str) -> tuple[str, int, str]:
    """Return the reason of a refusal, how often the interpreter was entered, and the first error."""
    why, [count, *messages] = request_refusal(checker, proof, checked=True)
    return why, int(count) if count.isdigit() else -1, "".join(messages[1:2])


EVALUATING_PROOFS = [
    "simp (maxSteps := 3 + 4)", "simp (config := { maxSteps := 3 + 4 })", "decide +kernel",
    "native_decide", "decide +native", "simp (maxSteps := Lean.maxRecDepthErrorMessage.length)",
]  # fmt: skip


@pytest.mark.parametrize("proof", EVALUATING_PROOFS)
def test_code_that_a_proof_runs_is_detected(checker, proof):
    why, entry_count, _ = describe_refusal(checker, proof)
    assert why == verdicts.WRONG_ANSWER and entry_count > 0


@pytest.mark.parametrize("program", attacks.PROGRAMS)
def test_no_program_runs_undetected(checker, program):
    """Memory is restored also if a program breaks off. Lean may refuse to compile a program."""
    why, entry_count, error = describe_refusal(
        checker, f"simp (maxSteps := {attacks.PROGRAMS[program]})"
    )
    if why == verdicts.WRONG_ANSWER and not entry_count:
        assert "Error evaluating configuration" in error


ORDINARY_PROOFS = [
    "omega", "simp", "decide", "grind", "rfl", "induction 3 <;> simp_all <;> omega",
    "have : ∀ n : Nat, n + 0 = n := fun n => by cases n <;> rfl\n  norm_cast",
    "simp [Nat.add_comm]",  # for which a linter would report an unused argument
]  # fmt: skip


@pytest.mark.parametrize("proof", ORDINARY_PROOFS)
def test_ordinary_proofs_run_no_code(checker, proof):
    """Otherwise memory would be restored after every proof."""
    why, entry_count, _ = describe_refusal(checker, proof)
    assert why == verdicts.WRONG_ANSWER and entry_count == 0


def test_honest_proofs_among_hostile_ones_are_accepted(checker):
    for program in attacks.PROGRAMS.values():
        assert checker.check("p1", STATEMENT, f"simp (maxSteps := {program})").reward == 0.0
        assert checker.check(*TRUE_PROOF).reason == verdicts.PASSED


# Changes of the author, after which its only message is the address of the theorem's type in memory.
REMEMBER_ADDRESS = (
    r"return x\.l_Lean_Language_SnapshotTask_finished",
    "this.seen = String(rt.field(rt.field(header, 1), 5));\n    \\g<0>",
    1,
)
REPORT_ADDRESS = (
    r"(?m)^    if \(!statements\.has.*\n    return result;",
    """    statements.set(statement, this.dropProof(result.snapshot));
    const { Refusal } = require('./refusal.js');
    throw new Refusal('wrong_answer', [this.seen]);""",
    1,
)


def test_a_statement_is_elaborated_once_for_its_proofs(monkeypatch, tmp_path):
    """Later proofs use the type of the first one, until memory is restored."""
    change_script("frontend.js", [REMEMBER_ADDRESS, REPORT_ADDRESS], tmp_path, monkeypatch)
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()

        def address(statement: str, proof: str) -> str:
            request = {"name": "p1", "statement": statement, "proof": proof, "checked": False}
            return checker._processes["author"].request(request, 60)[0].messages[0]

        first_addresses = [address(STATEMENT, proof) for proof in ("rfl", "decide", "exact 1")]
        second_address = address(TRUE_PROOF[1], "rfl")
    assert len(set(first_addresses)) == 1
    assert second_address not in first_addresses


def test_a_proof_inherits_no_lemma_from_an_earlier_one(checker):
    """Proofs share the elaborated statement. The declarations that a proof adds are checked each time."""
    proof = "have k : ∀ n : Nat, n < 2 → n < 3 := by omega\n  omega"
    (why, [_, first, *_]), (_, [_, second, *_]) = [
        request_refusal(checker, proof, False) for _ in range(2)
    ]
    assert why == verdicts.WRONG_ANSWER
    assert first == second != "0"


RESTORE_SCRIPT = """
    const { Image } = require(process.argv[1]);
    const uses = JSON.parse(process.argv[2]);
    const image = new Image({ top: 1000 }, []);
    let restored = [];
    image.restore = () => restored.push(at);
    let at = 0;
    for (const { evaluated, isFinished, top } of uses) {
      at += 1;
      const noticed = { evaluated, unchecked: [[1, 2]] };
      image.restoreIfChanged({ noticed, x: { sbrk: () => top } }, isFinished);
      if (noticed.evaluated || noticed.unchecked.length) throw new Error('not forgotten');
    }
    console.log(JSON.stringify(restored));
"""
QUIET_USE = {"evaluated": 0, "isFinished": True, "top": 1000}


@pytest.mark.parametrize(
    ("uses", "restored"),
    [
        ([QUIET_USE] * 3, []),
        ([QUIET_USE, QUIET_USE | {"evaluated": 1}, QUIET_USE], [2]),
        ([QUIET_USE, QUIET_USE | {"isFinished": False}, QUIET_USE], [2]),
        ([QUIET_USE, QUIET_USE | {"top": 1 << 28}, QUIET_USE], [2]),
    ],
)
def test_memory_is_restored_only_after_evaluation_a_failure_or_growth(uses, restored):
    printed = run_node(RESTORE_SCRIPT, launch.SCRIPTS / "memory.js", json.dumps(uses))
    assert json.loads(printed) == restored
