"""Fixed texts that prove many theorems. None of them may prove a generated theorem.

Each text tries Lean's automation, or as many witnesses as fit into a proof. It uses the names in the
generated theorems: their variables, f, h₀ and h₁.
"""

from rapid.grading.limits import LEAN_PROOF_BYTES


def try_first(*tactics: str) -> str:
    return "".join(["  first", *(f"\n  | ({tactic})" for tactic in tactics)]) + "\n"


def repeat_to_the_limit(tactic: str) -> str:
    """Return the tactic with 0, 1, 2, ..., as often as it fits into a proof."""
    text, number = "  first", 0
    while len((text + tactic.format(number)).encode()) < LEAN_PROOF_BYTES - 5:
        text += tactic.format(number)
        number += 1
    return f"{text}\n"


INDUCTION = [
    f"induction {variable} <;> {tactic}"
    for variable in ("n", "x", "a", "k")
    for tactic in ("grind", "simp_all", "omega")
]
# The fastest search: the kernel tries the numbers one by one.
SEARCH = """  have search : ∀ (p : Nat → Bool) (m n : Nat), Nat.rec (motive := fun _ => Nat → Bool)
      (fun _ => false) (fun _ r i => p i || r (i + 1)) m n = true → ∃ x, p x = true := by
    intro p m
    induction m with
    | zero => intro n h; cases h
    | succ k ih => intro n h; cases hk : p n with
      | true => exact ⟨n, hk⟩
      | false => exact ih (n + 1) (by simpa [hk] using h)
  have found : ∀ (p : Nat → Prop) [DecidablePred p] (m : Nat), Nat.rec (motive := fun _ => Nat → Bool)
      (fun _ => false) (fun _ r i => decide (p i) || r (i + 1)) m 0 = true → ∃ x, p x :=
    fun p _ m h => (search (fun x => decide (p x)) m 0 h).elim fun x k => ⟨x, of_decide_eq_true k⟩
  try simp only [h₀]
  exact found _ 10000 (by decide +kernel)
"""
NO_LIMITS = "  set_option maxRecDepth 100000 in set_option maxHeartbeats 0 in "

UNIVERSAL_PROOFS = {
    "grind and induction": try_first("grind", *INDUCTION),
    "every decision procedure": try_first(
        "rfl", "decide", "decide +kernel", "omega", "simp", "simp_all", "simp +arith",
        "simp_all +arith", "grind", "lia", "grobner", "ac_rfl", "trivial", "contradiction", "exact?",
    ),
    "one after another": try_first(
        "simp_all; omega", "simp at *; omega", "simp_all; decide", "simp_all; grind", "intros; grind",
        "norm_cast; omega", "subst_vars; decide", "exfalso; grind", "exfalso; omega",
        "apply Classical.byContradiction; intro h; grind", "by_cases f = f <;> grind",
        "split <;> grind", "constructor <;> grind", "constructor <;> simp_all", "ext; grind",
    ),
    "its hypotheses": try_first(
        "exact h₀", "exact h₁ _", "simp [h₀]", "simp [h₀, h₁]", "simp only [h₁, h₀]", "rw [h₁, h₀]",
        "rw [h₀]; grind", "rw [h₁]; grind", "grind [h₀]", "simp +arith [h₀]", "simp [h₀]; omega",
        "simp [h₁, h₀]; omega", "simp only [h₀]; grind", "simp only [h₀]; lia",
        "have := h₁ 0; have := h₁ 1; have := h₁ 2; grind",
        "exact (h₁ _).trans h₀", "exact (h₁ _).trans (by grind)", "repeat (first | exact h₀ | rw [h₁])",
    ),
    "a witness left open": try_first(
        "exact ⟨_, rfl⟩", "exact ⟨_, h₀ _⟩", "exact ⟨_, by assumption⟩", "refine ⟨_, ?_⟩; exact h₀ _",
        "refine ⟨?_, ?_⟩; all_goals grind", "apply Exists.intro; rfl", "apply Exists.intro; exact h₀ _",
        "exact ⟨_, Nat.div_add_mod _ _⟩", "exact ⟨_, by decide⟩", "exact ⟨_, by omega⟩",
        "constructor; exact?", "constructor; omega", "constructor; rw [h₀]; omega",
    ),
    "what holds at all places, without its numbers": try_first(
        "have h : ∀ n, f n = f 0 := by intro n; induction n <;> grind",
        "have h : ∀ n, f n = n := by intro n; induction n <;> grind",
        "have h : ∀ n, f n = (f 1 - f 0) * n + f 0 := by intro n; induction n <;> grind",
        "generalize hk : f _ = k; induction k <;> grind", "induction f 0 <;> grind",
    ),
    "witnesses": repeat_to_the_limit("|exact⟨{},rfl⟩"),
    "witnesses of a function": repeat_to_the_limit("|exact⟨{},h₀ _⟩"),
    "a search of the kernel's": SEARCH,
    "simp without limits": f"{NO_LIMITS}{try_first('simp [h₁, h₀]', 'simp_all').lstrip()}",
    "grind without limits": f"{NO_LIMITS}grind (ematch := 10000) (gen := 10000) (splits := 1000)",
}  # fmt: skip

# A theorem that each text proves, so that no text fails because of an error in it.
EASY_THEOREMS = dict.fromkeys(UNIVERSAL_PROOFS, "(f : Nat → Nat) (h₀ : f 0 = 0) : f 0 = 0") | {
    "a witness left open": ": ∃ x : Nat, x + 0 = 0",
    "witnesses": ": ∃ x : Nat, 7 * x + 3 = 80",
    "witnesses of a function": "(f : Nat → Nat) (h₀ : ∀ n, f n = 7 * n + 3) : ∃ n, f n = 80",
    "a search of the kernel's": ": ∃ x : Nat, 7 * x + 3 = 80",
}
