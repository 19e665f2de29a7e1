"""Lean's memory is put back once a proof's code ran in it; the author is told when that happens."""

import json
import subprocess

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker, launch
from rapid.grading.lean.install import find_node
from tests.grading.lean import attacks
from tests.grading.lean.scripts import change_script

STATEMENT = "theorem p1 : (1 : Nat) = 2 := by\n  "
TRUE = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
# It stops no code. It says how often the interpreter was entered and how many declarations were
# added unchecked, and then what was wrong.
TELLTALE = [
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
    with pytest.MonkeyPatch.context() as patch:
        change_script("author.js", TELLTALE, tmp_path_factory.mktemp("author"), patch)
        with LeanChecker(timeout=60) as checker:
            checker.wait_ready()
            yield checker


def told(checker: LeanChecker, proof: str, checked: bool) -> tuple[str, list[str]]:
    """Why the author refuses a proof, and what else it says."""
    request = {"name": "p1", "statement": STATEMENT, "proof": proof, "checked": checked}
    answer, export = checker._processes["author"].request(request, 60)
    assert not export
    return answer.why, answer.messages


def refused(checker: LeanChecker, proof: str) -> tuple[str, int, str]:
    """Why the author refuses a proof, how often it entered the interpreter, and its first error."""
    why, [count, *messages] = told(checker, proof, checked=True)
    return why, int(count) if count.isdigit() else -1, "".join(messages[1:2])


EVALUATED = [
    "simp (maxSteps := 3 + 4)", "simp (config := { maxSteps := 3 + 4 })", "decide +kernel",
    "native_decide", "decide +native", "simp (maxSteps := Lean.maxRecDepthErrorMessage.length)",
]  # fmt: skip


@pytest.mark.parametrize("proof", EVALUATED)
def test_code_of_a_proof_is_noticed(checker, proof):
    why, entered, _ = refused(checker, proof)
    assert why == verdicts.WRONG_ANSWER and entered > 0


@pytest.mark.parametrize("program", attacks.PROGRAMS)
def test_no_program_runs_unnoticed(checker, program):
    """Where one breaks off, memory is put back, too. Lean may also refuse to compile it."""
    why, entered, error = refused(checker, f"simp (maxSteps := {attacks.PROGRAMS[program]})")
    if why == verdicts.WRONG_ANSWER and not entered:
        assert "Error evaluating configuration" in error


ORDINARY = [
    "omega", "simp", "decide", "grind", "rfl", "induction 3 <;> simp_all <;> omega",
    "have : ∀ n : Nat, n + 0 = n := fun n => by cases n <;> rfl\n  norm_cast",
    "simp [Nat.add_comm]",  # of which a linter would say that it is not used
]  # fmt: skip


@pytest.mark.parametrize("proof", ORDINARY)
def test_lean_runs_no_code_of_its_library(checker, proof):
    """Otherwise memory would be put back after each proof."""
    why, entered, _ = refused(checker, proof)
    assert why == verdicts.WRONG_ANSWER and entered == 0


def test_honest_proofs_among_hostile_ones_are_accepted(checker):
    for program in attacks.PROGRAMS.values():
        assert checker.check("p1", STATEMENT, f"simp (maxSteps := {program})").reward == 0.0
        assert checker.check(*TRUE).reason == verdicts.PASSED


# It says nothing but where the type lies that a proof's header has.
HEADER = (
    r"return x\.l_Lean_Language_SnapshotTask_finished",
    "this.seen = String(rt.field(rt.field(header, 1), 5));\n    \\g<0>",
    1,
)
WHERE = (
    r"(?m)^    if \(!statements\.has.*\n    return result;",
    """    statements.set(statement, this.stated(result.snapshot));
    const { Refusal } = require('./refusal.js');
    throw new Refusal('wrong_answer', [this.seen]);""",
    1,
)


def test_a_statement_is_elaborated_once_for_its_proofs(monkeypatch, tmp_path):
    """A second proof has the very type of the first one, until memory is put back."""
    change_script("frontend.js", [HEADER, WHERE], tmp_path, monkeypatch)
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()

        def address(statement: str, proof: str) -> str:
            request = {"name": "p1", "statement": statement, "proof": proof, "checked": False}
            return checker._processes["author"].request(request, 60)[0].messages[0]

        first = [address(STATEMENT, proof) for proof in ("rfl", "decide", "exact 1")]
        second = address(TRUE[1], "rfl")
    assert len(set(first)) == 1
    assert second not in first


def test_a_proof_inherits_no_lemma_from_an_earlier_one(checker):
    """Proofs of a statement share their statement; what else one adds is looked into each time."""
    proof = "have k : ∀ n : Nat, n < 2 → n < 3 := by omega\n  omega"
    (why, [_, first, *_]), (_, [_, second, *_]) = [told(checker, proof, False) for _ in range(2)]
    assert why == verdicts.WRONG_ANSWER
    assert first == second != "0"


SCRIPT = """
    const { Image } = require(process.argv[1]);
    const given = JSON.parse(process.argv[2]);
    const image = new Image({ top: 1000 }, []);
    let restored = [];
    image.restore = () => restored.push(at);
    let at = 0;
    for (const { evaluated, isWhole, top } of given) {
      at += 1;
      const noticed = { evaluated, unchecked: [[1, 2]] };
      image.tidy({ noticed, x: { sbrk: () => top } }, isWhole);
      if (noticed.evaluated || noticed.unchecked.length) throw new Error('not forgotten');
    }
    console.log(JSON.stringify(restored));
"""
QUIET = {"evaluated": 0, "isWhole": True, "top": 1000}


@pytest.mark.parametrize(
    ("uses", "restored"),
    [
        ([QUIET] * 3, []),
        ([QUIET, QUIET | {"evaluated": 1}, QUIET], [2]),
        ([QUIET, QUIET | {"isWhole": False}, QUIET], [2]),
        ([QUIET, QUIET | {"top": 1 << 28}, QUIET], [2]),
    ],
)
def test_memory_is_put_back_when_it_has_to_be(uses, restored):
    command = [find_node(), "-e", SCRIPT, str(launch.SCRIPTS / "memory.js"), json.dumps(uses)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == restored
