"""The checker of a native Lean (Checker.lean), run by the WebAssembly Lean's interpreter.

The WebAssembly Lean lacks the compiled code of a few library functions that the checker calls, so
they are defined again here. The tests do not cover:

- `serve`, which reads standard input;
- proofs that use theorems of the library, which look like axioms here;
- a `match` or a definition in a proof, at which this interpreter ends for an unknown reason. Therefore
  the judge is tested on exports without definitions.
"""

import json
import re
import time
from pathlib import Path

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker, ensure_lean, install, launch
from rapid.grading.lean.process import LeanProcess, Ready
from tests.grading.lean import exports

pytestmark = pytest.mark.slow  # minutes, for all together

# The library functions that are defined again, under the names that the compiler gives them.
LIBRARY = """
def List.reverse._redArg (items : List Nat) : List Nat := go items [] where
  go : List Nat → List Nat → List Nat
    | [], done => done
    | item :: items, done => go items (item :: done)
def List.appendTR._redArg (a b : List Nat) : List Nat := match a with
  | [] => b
  | item :: items => item :: List.appendTR._redArg items b
def List.all._redArg (items : List Nat) (holds : Nat → Bool) : Bool := match items with
  | [] => true
  | item :: items => holds item && List.all._redArg items holds
def List.any._redArg (items : List Nat) (holds : Nat → Bool) : Bool := match items with
  | [] => false
  | item :: items => holds item || List.any._redArg items holds
def List.findSome?._redArg (f : Nat → Option String) : List Nat → Option String
  | [] => none
  | item :: items => match f item with
    | none => List.findSome?._redArg f items
    | found => found
def List.head!._redArg (other : Lean.Elab.Command.Scope) :
    List Lean.Elab.Command.Scope → Lean.Elab.Command.Scope
  | [] => other
  | item :: _ => item
def Lean.Name.toStringWithToken._at_.Lean.Name.toString.spec_0 (_ : Lean.Name) (_ : Bool) :
    String := "a name"
def Lean.Parser.mkInputContext._redArg (inputString fileName : String) (_ : Bool)
    (endPos : String.Pos.Raw) : Lean.Parser.InputContext :=
  { inputString, fileName, fileMap := .ofString inputString, endPos, endPos_valid := sorry }
"""

# `#answers` ends the header with an error whose text has the answers.
COMMANDS = """
namespace RapidChecker
def testCases : List (String × String × String × String) := [CASES]
def optionOf (env : Environment) (text : String) : String :=
  match Parser.runParserCategory env `tactic text with
  | .error why => why
  | .ok stx => match refusals stx with
    | "" => "let through"
    | why => why
def answerTo (base : Command.State) (memory : IO.Ref Memory) :
    String × String × String × String → IO String
  | ("author", name, statement, proof) => do
    let answer ← author base (.str .anonymous name) statement proof
    return answer.text?.getD answer.why
  | ("judge", name, statement, text) => return (← answerJudge base memory name statement text).why
  | ("import", header, _, _) =>
    try let _ ← importHeader header; return "imported"
    catch error => return toString error
  | (_, text, _, _) => return optionOf base.env text
def allAnswers (base : Command.State) (memory : IO.Ref Memory) (before : String) :
    List (String × String × String × String) → IO String
  | [] => return before ++ "]"
  | case :: cases => do
    let answer ← answerTo base memory case
    allAnswers base memory (before ++ "," ++ (Json.str answer).compress) cases
syntax (name := answers) "#answers" : command
@[command_elab answers] def answer : Command.CommandElab := fun _ _ state => do
  let base ← state.get
  let text ← (do allAnswers base (← IO.mkRef {}) "[0" testCases : IO String).toBaseIO
  match text with
  | .ok text => throw (.error .missing (.ofFormat text))
  | .error why => throw (.error .missing (.ofFormat (toString why)))
end RapidChecker
#answers
"""
STATEMENT = "theorem p1 (p q : Prop) (h : p ∧ q) : q ∧ p :="
PROOFS_WITH_EXPORT = {
    "a term": " ⟨h.2, h.1⟩",
    "a lemma beside": " by\n  have swap : ∀ a b : Prop, a ∧ b → b ∧ a := fun _ _ h => ⟨h.2, h.1⟩\n"
    "  exact swap p q h",
    "cases": " by\n  cases h with\n  | intro a b => exact And.intro b a",
    "a let": " let a := h.2; ⟨a, h.1⟩",
}
REFUSED_PROOFS = {
    " ⟨h.1, h.2⟩": verdicts.WRONG_ANSWER,
    " by sorry": verdicts.FORBIDDEN,
    " by simp (maxSteps := 1 + 1)": verdicts.FORBIDDEN,
    " by exact (": verdicts.UNPARSABLE,
    " ⟨h.2, h.1⟩\naxiom cheat : False": verdicts.UNPARSABLE,
}
LITERAL_OPTIONS = [
    "simp (maxSteps := 500)",
    "simp (config := { maxSteps := 500, decide := true })",
    "rw (occs := .pos [1, 2]) [h]",
    "rw (occs := .all) [h]",
    "decide +kernel",
]
COMPUTED_OPTIONS = [
    "simp (maxSteps := 1 + 1)",
    "simp (maxSteps := f)",
    "simp (config := { maxSteps := f 3 })",
    "simp (config := f)",
    "rw (occs := .pos [f]) [h]",
    "constructor <;> simp (maxSteps := (fun x => x) 3)",
    "simp (maxSteps := by exact 3)",
    "simp (maxSteps := let x := 3; x)",
]


def compact_export(export: bytes) -> str:
    """Return an export without the spaces that Python writes.

    Bytes that are not UTF-8 are kept as other characters: their refusal is not tested here.
    """
    return export.decode("latin-1").replace(", ", ",")


def quote_for_lean(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\\u0000", "\\x00").replace("\\b", "\\x08")


def read_checker_source() -> str:
    parts = [part.read_text(encoding="utf-8") for part in install.CHECKER_PARTS]
    source = "\n".join(parts).replace("import Lean\n", "")
    # The rest needs functions that the library lacks.
    return source[: source.index("def fieldOf")] + "\nend RapidChecker\n"


def run_cases(cases: dict[str, tuple[str, ...]], folder: Path) -> dict[str, str]:
    """Return Checker.lean's answers to cases. The WebAssembly Lean can take a few dozen at a time."""
    case_list = ",\n".join(
        "(" + ", ".join(map(quote_for_lean, [*case, "", ""][:4])) + ")" for case in cases.values()
    )
    header = (
        "import Lean\n" + LIBRARY + read_checker_source() + COMMANDS.replace("CASES", case_list)
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(launch, "get_image_path", lambda *_: folder / "image")
        process = LeanProcess(ensure_lean(), header, "author")
        try:
            why = process._read(Ready, time.monotonic() + 300, lambda _: True).why
        finally:
            process.end()
    match = re.search(r"\[0,.*\]", why, re.DOTALL)
    assert match, why[:1000]
    return dict(zip(cases, json.loads(match[0])[1:], strict=True))


def judge_cases(proposition: str, exports_by_name: dict[str, bytes]) -> dict[str, tuple[str, ...]]:
    """Return cases of those exports that are short enough for the interpreter to read in a second."""
    statement = f"theorem p1 : {proposition} :="
    short_exports = {name: export for name, export in exports_by_name.items() if len(export) < 3000}
    return {
        name: ("judge", "p1", statement, compact_export(short_exports[name]))
        for name in short_exports
    }


def test_the_complete_checker_elaborates(image):
    source = install.write_native_checker().read_text(encoding="utf-8")
    source = source.replace("open Lean Elab", "noncomputable section\nopen Lean Elab", 1)
    with LeanChecker(timeout=1, header=source) as lean:
        assert lean.wait_ready() > 0


def test_an_honest_export_passes(tmp_path):
    reasons = run_cases(judge_cases("True", {"honest": exports.HONEST}), tmp_path)
    assert reasons == {"honest": verdicts.PASSED}


def test_no_export_proves_false(tmp_path):
    reasons = run_cases(judge_cases("False", exports.EXPORTS_OF_FALSE), tmp_path)
    assert reasons == dict.fromkeys(reasons, verdicts.FORBIDDEN)


@pytest.mark.parametrize("offset", range(6))
def test_an_export_of_another_form_is_refused(offset, tmp_path):
    cases = judge_cases("True", exports.BAD_FORMS)
    reasons = run_cases({name: cases[name] for name in list(cases)[offset::6]}, tmp_path)
    assert reasons == dict.fromkeys(reasons, verdicts.FORBIDDEN)


@pytest.mark.parametrize("name", PROOFS_WITH_EXPORT)
def test_the_webassembly_judge_accepts_exports_of_the_native_author(name, tmp_path):
    export = run_cases({name: ("author", "p1", STATEMENT, PROOFS_WITH_EXPORT[name])}, tmp_path)[
        name
    ]
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()
        goal = {"name": "p1", "statement": STATEMENT}
        answer, _ = checker._processes["judge"].request(goal, 60, export.encode())
    assert answer.why == verdicts.PASSED


def test_both_authors_refuse_proofs_with_the_same_reasons(tmp_path):
    cases = {proof: ("author", "p1", STATEMENT, proof) for proof in REFUSED_PROOFS}
    assert run_cases(cases, tmp_path) == REFUSED_PROOFS


def test_literal_options_are_accepted_and_computed_ones_refused(tmp_path):
    reasons = run_cases(
        {text: ("option", text) for text in LITERAL_OPTIONS + COMPUTED_OPTIONS}, tmp_path
    )
    refusals = dict.fromkeys(COMPUTED_OPTIONS, "an option's value is computed\n")
    assert reasons == dict.fromkeys(LITERAL_OPTIONS, "let through") | refusals


def test_a_header_whose_import_fails_is_refused_with_leans_message(tmp_path):
    headers = ["import Nope", "import", "open Nat", "open Nope"]
    reasons = run_cases({header: ("import", header) for header in headers}, tmp_path)
    assert "unknown module prefix 'Nope'" in reasons["import Nope"]
    assert reasons["open Nat"] == "imported"
    assert "imported" not in (reasons["import"], reasons["open Nope"])
