"""Proofs of falsehoods.

Two Lean processes check a proof: the author elaborates and exports it, and the judge checks the export.
Every proof here has to be refused, whichever checks of the author are switched off: test_attacks.py
tries each on an unchanged author, on one without lists of forbidden words, and on one that exports
every proof.
"""

from tests.grading.lean.test_proofs import FALSE, FORBIDDEN, NOT_PROVED, SECOND_COMMANDS

FALSEHOOD = "theorem p1 : False := by\n  "
FERMAT = "theorem p1 : ∃ a b c : Nat, 0 < a ∧ 0 < b ∧ a ^ 3 + b ^ 3 = c ^ 3 := by\n  "
TEXTS = 'theorem p1 : "a\\x00b" = "a" := by\n  '
NUMBERS = "theorem p1 : (1000003 : Nat) = 1000004 := by\n  "

# Programs of type Nat for the value of an option, which Lean evaluates.
PROGRAMS = {
    "a sum": "3 + 4",
    "an address": "(ptrAddrUnsafe (5 : Nat)).toNat",
    "a file": '((unsafeIO (IO.FS.readFile "/etc/hostname")).toOption.getD "").length',
    "a file written": '(unsafeIO (IO.FS.writeFile "x" "y")).toOption.elim 1 (fun _ => 2)',
    "a reference": "unsafeBaseIO (do let r ← ST.Prim.mkRef 3; ST.Prim.Ref.set r 4; ST.Prim.Ref.get r)",
    "an exit": "((unsafeIO (IO.Process.exit 0) : Except IO.Error Nat).toOption).getD 1",
    "a process": '((unsafeIO (IO.Process.run { cmd := "id" })).toOption.getD "").length',
    "a trace": 'dbgTrace "x" fun _ => 1',
    "a panic": 'panic! "x"',
    "an impossible value": "(lcUnreachable : Nat)",
    "compiled code": "Lean.reduceNat 5",
    "a task": "(Task.spawn fun _ => 5).get",
    "a recursion": "let rec f (n : Nat) : Nat := f (n + 1); f 0",
}
# Tactics with an option, whose value is a program in place of the braces.
PLACES = {
    "simp": "simp (maxSteps := {})",
    "simp's structure": "simp (config := {{ maxSteps := {} }})",
    "grind": "grind (splits := {})",
    "omega": "omega (config := {{ splitDisjunctions := {} == 5 }})",
    "decide": "decide (config := {{ kernel := {} == 5 }})",
    "rw": "rw (config := {{ offsetCnstrs := {} == 5 }}) [show (1 : Nat) = 2 from rfl]",
    "a conversion": "conv => simp (maxSteps := {})",
    "a last resort": "first | omega | (simp (maxSteps := {}) <;> trivial)",
}
BY_OPTION = {
    f"{program} in {place}": (FALSE, PLACES[place].format(PROGRAMS[program]))
    for program in PROGRAMS
    for place in PLACES
}

# Attacks that test_proofs.py does not have.
CLASSICS = {
    "sorry by an option": "set_option debug.terminalTacticsAsSorry true in omega",
    "sorry for an error": "all_goals (first | done | exact sorryAx _)",
    "the kernel turned off for a term": "set_option debug.skipKernelTC true in exact lcProof",
    "the axiom of the compiler": "exact Lean.ofReduceBool _ true rfl ▸ rfl",
    "compiled evaluation by option": "decide +native",
    "reduceBool": "exact of_decide_eq_true (Lean.ofReduceBool (decide ((1 : Nat) = 2)) true rfl)",
    "recursion without end": "exact f ()\nwhere f : Unit → (1 : Nat) = 2 := fun u => f u",
    "partial recursion": "exact f 0\nwhere partial f (n : Nat) : (1 : Nat) = 2 := f (n + 1)",
    "another addition": "letI : HAdd Nat Nat Nat := ⟨fun _ _ => 2⟩; exact (rfl : (1 : Nat) + 0 = 2)",
    "another literal": "letI : OfNat Nat 2 := ⟨1⟩; exact (rfl : (1 : Nat) = 2)",
    "another Nat": "let Nat := Unit; exact (rfl : (() : Nat) = ())",
    "an external function": 'exact x\nwhere @[extern "lean_nat_add"] x : (1 : Nat) = 2 := x',
    "a macro": "(macro_rules | `(tactic| rfl) => `(tactic| sorry)); rfl",
    "an inconsistent universe": "exact (fun (α : Type) (h : α = Type) => h ▸ rfl) Type rfl",
    "a wrong calculation": "calc (1 : Nat) = 1 := rfl\n    _ = 2 := rfl",
    "decide": "decide",
    "a reduction": "exact (Nat.rec rfl (fun _ h => h) 1 : (1 : Nat) = 2)",
    "well-founded recursion": "exact f 1\nwhere f (n : Nat) : (1 : Nat) = 2 := f n\n  decreasing_by sorry",
    "an unreachable case": "exact (lcUnreachable : (1 : Nat) = 2)",
    "a panic": 'exact panic! "one"',
    "a hole": "exact ?_",
    "a postponed hole": "refine ?h; case h => skip",
    "an unclosed comment": "/- rfl",
}
FALSEHOODS = {
    "False by sorry": (FALSEHOOD, "sorry"),
    "False by a decision": (FALSEHOOD, "exact of_decide_eq_true (by native_decide)"),
    "Fermat by sorry": (FERMAT, "exact ⟨1, 1, 1, by sorry⟩"),
    "Fermat by an unsafe witness": (FERMAT, "exact unsafe ⟨unsafeCast 1, 1, 1, lcProof⟩"),
    "texts cut at NUL": (TEXTS, "rfl"),
    "texts cut at NUL, decided": (TEXTS, "decide"),
    "texts cut at NUL, by the kernel": (TEXTS, "decide +kernel"),
    "texts of another length": ('theorem p1 : "a\\x00".length = 1 := by\n  ', "decide +kernel"),
}
# Lean runs this code, which finds the statement's 1000004 in Lean's memory and overwrites it with 1000003.
# `fake` is an array of bytes without end, whose header lies in the data of another array.
REWRITING = """unsafe (
      let bytes := (ByteArray.mk #[
        1, 0, 0, 0, 0, 0, 1, 248, 255, 255, 255, 127, 255, 255, 255, 127,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).uset 0 1 lcProof
      let here : USize := ptrAddrUnsafe bytes
      let header : USize := here + 16
      let bytes := bytes.uset 16 header.toUInt8 lcProof
      let bytes := bytes.uset 17 (header >>> 8).toUInt8 lcProof
      let bytes := bytes.uset 18 (header >>> 16).toUInt8 lcProof
      let bytes := bytes.uset 19 (header >>> 24).toUInt8 lcProof
      let array : Array ByteArray := #[ByteArray.empty]
      let index : USize := (here + 32 - (ptrAddrUnsafe array + 16)) / 4
      let fake := if bytes.size > 0 then array.uget index lcProof else ByteArray.empty
      let bytes := bytes.uset (if fake.size > 0 then 0 else 1) 1 lcProof
      let fake := if bytes.size > 0 then (List.range 600000).foldl (fun (fake : ByteArray) k =>
        let spot : USize := 4 * USize.ofNat k - 1200000
        if fake.uget spot lcProof == 137 && fake.uget (spot + 1) lcProof == 132
          && fake.uget (spot + 2) lcProof == 30 && fake.uget (spot + 3) lcProof == 0
        then fake.uset spot 135 lcProof else fake) fake else fake
      (fake.uset (0 - 16) 100 lcProof).size > 0)"""
REWRITE = f"""first
  | (set_option compiler.extract_closed false in
     have h : ({REWRITING} : Bool) = true := by native_decide
     fail)
  | exact (rfl : (1000003 : Nat) = 1000003)"""

REFUSED = FORBIDDEN | NOT_PROVED
PROOFS = {
    **BY_OPTION,
    **{f"{label}, refused": REFUSED[label] for label in REFUSED if REFUSED[label][0] == FALSE},
    **{f"{label} after it": (FALSE, f"rfl\n{text}") for label, text in SECOND_COMMANDS.items()},
    **{label: (FALSE, proof) for label, proof in CLASSICS.items()},
    **FALSEHOODS,
}
