"""Verdicts of the Lean checker on proofs. Each refused text is one way to cheat."""

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import BadStatement

TRUE = "theorem p1 : (1 : Nat) = 1 := by\n  "
FALSE = "theorem p1 : (1 : Nat) = 2 := by\n  "
MATCH = "theorem p1 (x : Option Nat) : (match x with | none => 1 | some y => y + 1) > 0 := by\n  "


PROOFS = {
    "kernel evaluation": ("theorem p1 : 2 ^ 100 % 7 = 2 := by\n  ", "decide +kernel"),
    "ring": ("theorem p1 (a b : Int) : (a + b) * (a - b) = a * a - b * b := by\n  ", "grind"),
    "witness": ("theorem p1 : ∃ x : Nat, 3 * x + 2 = 17 := by\n  ", "exact ⟨5, by omega⟩"),
    "induction": (
        "theorem p1 (f : Nat → Nat) (h : f 0 = 2) (k : ∀ n, f (n + 1) = f n + 3) (n : Nat) :\n"
        "    f n = 2 + 3 * n := by\n  ",
        "induction n with\n  | zero => exact h\n  | succ m ih => rw [k, ih]; omega",
    ),
    "classical axioms": (
        "theorem p1 (p : Prop) (h : ¬¬p) : p := by\n  ",
        "exact Classical.byContradiction h",
    ),
    "a lemma beside it": (TRUE, "exact aux\nwhere\n  aux : (1 : Nat) = 1 := rfl"),
    "large numbers": (
        "theorem p1 (n : Nat) (h : n = 2 ^ 100) : n + 1 = 1267650600228229401496703205377 := by\n  ",
        "subst h; decide +kernel",
    ),
    "strings": ('theorem p1 : "a\\n𝒮".length = 3 ∧ "a" ≠ "b" := by\n  ', "decide"),
    "cases of a match, by tasks": (MATCH, "split <;> omega"),
    "cases of a match, by grind": (MATCH, "grind"),
    "cases of a match in a hypothesis": (
        "theorem p1 (x : Nat) (h : (match x with | 0 => 1 | n + 1 => n) = 5) : x = 6 := by\n  ",
        "split at h <;> simp_all",
    ),
    "functional induction": (
        "theorem p1 (xs : List Nat) (p : Nat → Bool) : (xs.filter p).length ≤ xs.length := by\n  ",
        "fun_induction List.filter p xs <;> simp_all <;> omega",
    ),
    "a search for a lemma": ("theorem p1 (n : Nat) : n + 0 = n := by\n  ", "exact?"),
    "universes": (
        "theorem p1.{u, v} (α : Type u) (β : Type (max u v)) (x : α × β) : ∃ y, y = x.1 := by\n  ",
        "let z := x; exact ⟨z.1, by cases x; rfl⟩",
    ),
    "unicode": (
        "theorem p1 (α : Type) (𝒮 : α → Prop) (x₁ : α) (hé : 𝒮 x₁) : 𝒮 x₁ := by\n  ",
        "exact ‹𝒮 x₁› -- ✓ 証明",
    ),
    "no space between": ("theorem p1 : (1 : Nat) = 1 := by", "rfl"),
    # At first an author leaves the kernel's check to the judge, which must not change the verdict. These
    # proofs first try a step that the kernel refuses.
    "after a refusal": (
        TRUE,
        "first\n    | exact absurd (by decide +kernel : (1 : Nat) = 2) (by decide)\n    | rfl",
    ),
    "at an error": (TRUE, "fail_if_success (have : (1 : Nat) = 2 := by decide +kernel)\n  rfl"),
    "after an error that ends it": (
        TRUE,
        "exact ((by first\n    | (have : (1 : Nat) = 2 := by decide +kernel); exact no_such\n"
        "    | rfl) : (1 : Nat) = 1)",
    ),
    "after one that is no error": (TRUE, "try have : (1 : Nat) = 2 := by decide +kernel\n  rfl"),
}


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_is_accepted(lean, name):
    verdict = lean.check("p1", *PROOFS[name])
    assert (verdict.reward, verdict.reason) == (1.0, verdicts.PASSED)


NOT_PROVED = {
    "kernel evaluation": (FALSE, "decide +kernel"),
    "kernel evaluation in a lemma": (FALSE, "exact absurd (by decide +kernel : 1 = 2) (by decide)"),
    "tactic fails": ("theorem p1 (a b : Nat) (h : a < b) : a + 2 ≤ b := by\n  ", "omega"),
    "goal left": (FALSE, "skip"),
    "unknown name": (FALSE, "exact no_such_lemma"),
    "circular": (FALSE, "exact p1"),
    "endless recursion": (FALSE, "exact f 0\nwhere f (n : Nat) : (1 : Nat) = 2 := f (n + 1)"),
    "a constant of the compiler": (FALSE, "exact lcProof"),
}


@pytest.mark.parametrize("name", NOT_PROVED)
def test_a_text_that_proves_nothing_has_no_reward(lean, name):
    verdict = lean.check("p1", *NOT_PROVED[name])
    assert verdict.reward == 0.0
    assert verdict.reason in (verdicts.WRONG_ANSWER, verdicts.UNPARSABLE)


FORBIDDEN = {
    "sorry": (FALSE, "sorry"),
    "admit": (FALSE, "admit"),
    "stop": (FALSE, "stop\n  rfl"),
    "sorry as a last resort": (FALSE, "first | done | sorry"),
    "sorry in a lemma": (FALSE, "exact x\nwhere x : (1 : Nat) = 2 := sorry"),
    "sorry as an instance": (FALSE, "letI : Decidable ((1 : Nat) = 2) := .isTrue sorry; decide"),
    "the kernel turned off": (FALSE, "set_option debug.skipKernelTC true in decide +kernel"),
    "compiled code for a truth": (TRUE, "native_decide"),
    "compiled code by option": (TRUE, "decide +native"),
    "compiled code in an option's value": (TRUE, "decide (config := {native := true})"),
    "native_decide of a falsehood": (FALSE, "native_decide"),
    "an unsafe cast": (FALSE, "exact unsafe (unsafeCast ())"),
    "code of a tactic": (FALSE, "run_tac Lean.Elab.Tactic.done"),
    "code of a term": (FALSE, "exact by_elab return Lean.mkConst ``True"),
    "sorry without its warning": (FALSE, "set_option warn.sorry false in sorry"),
    "a file": (FALSE, 'exact absurd (include_str "/etc/hostname") id'),
    "an attribute": (TRUE, "exact x\nwhere @[simp] x : (1 : Nat) = 1 := rfl"),
    "another implementation": (FALSE, "exact x\nwhere @[implemented_by y] x : 1 = 2 := x"),
    "tactics that are `sorry`": (TRUE, "set_option debug.terminalTacticsAsSorry true in omega"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_proof_gets_the_reason_forbidden(lean, name):
    verdict = lean.check("p1", *FORBIDDEN[name])
    assert (verdict.reward, verdict.reason) == (0.0, verdicts.FORBIDDEN)


SECOND_COMMANDS = {
    "axiom": "axiom cheat : False",
    "exit of the process": "#eval IO.Process.exit 0",
    "theorem": "theorem q : (1 : Nat) = 2 := p1",
    "local instance": "local instance : Add Nat := ⟨fun _ _ => 3⟩",
    "infix": 'local infix:50 " = " => fun _ _ => True',
    "macro_rules": "macro_rules | `($a = $b) => `(True)",
    "option": "set_option debug.skipKernelTC true",
    "prose": "Thus the proof is complete.",
}


UNPARSABLE = {name: (TRUE, f"rfl\n{text}") for name, text in SECOND_COMMANDS.items()} | {
    "nothing": (FALSE, ""),
    "open bracket": (FALSE, "exact ("),
    "prose alone": (FALSE, "We show that one is two."),
    "a macro inside": (FALSE, "(macro_rules | `(tactic| rfl) => `(tactic| sorry)); rfl"),
}


@pytest.mark.parametrize("name", UNPARSABLE)
def test_a_text_that_is_not_exactly_one_theorem_is_unparsable(lean, name):
    verdict = lean.check("p1", *UNPARSABLE[name])
    assert (verdict.reward, verdict.reason) == (0.0, verdicts.UNPARSABLE)


def test_a_theorem_with_another_name_is_refused(lean):
    with pytest.raises(BadStatement, match="p2"):
        lean.check("p2", TRUE, "rfl")


CHEATS_THAT_LEAVE_TRACES = (
    "rfl\naxiom cheat : (1 : Nat) = 2",
    "rfl\nmacro_rules | `(tactic| rfl) => `(tactic| trivial)",
    "exact x\nwhere @[simp] x : (1 : Nat) = 1 := rfl",
    "rfl\n@[simp] theorem q : (1 : Nat) = 2 := sorry",
)


@pytest.mark.parametrize("cheat", CHEATS_THAT_LEAVE_TRACES)
def test_a_cheat_does_not_change_the_verdicts_on_later_proofs(lean, cheat):
    lean.check("p1", TRUE, cheat)
    assert lean.check("p1", FALSE, "exact cheat").reason == verdicts.WRONG_ANSWER
    assert lean.check("p1", FALSE, "simp [p1.x]").reward == 0.0
    assert lean.check("p1", FALSE, "simp").reward == 0.0
    assert lean.check("p1", TRUE, "rfl").reward == 1.0


def test_verdicts_do_not_depend_on_their_order(lean):
    proofs = [*PROOFS.values(), *NOT_PROVED.values()]
    forwards = [lean.check("p1", *proof).reason for proof in proofs]
    backwards = [lean.check("p1", *proof).reason for proof in reversed(proofs)]
    assert forwards == backwards[::-1]
