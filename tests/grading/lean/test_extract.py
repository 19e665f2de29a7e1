"""Extraction of proofs from completions, in any form in which models write them."""

import pytest

from rapid.grading.lean.extract import readings, stated, uses_lemmas

HEAD = "theorem double (n : Nat) (h : n = 7) :\n    2 * n % 2 = 0"
LET = "theorem double (n : Nat := 7) : let m := 2 * n; m % 2 = 0"
TACTICS = "  have k := h\n  omega\n"
WHOLE = f"{HEAD} := by\n{TACTICS}"


def read(completion: str, head: str = HEAD) -> list[str]:
    """The proofs, without what does not matter to Lean: the space around them."""
    return [text.strip() for text in readings("double", f"{head} :=", completion)]


@pytest.mark.parametrize(
    ("statement", "end"),
    [
        *((HEAD, end) for end in (" := by", " := by\n  ", " := sorry", " := by sorry")),
        (LET, " := by"),  # has assignments within
        (HEAD, " := by -- so := it is"),
    ],
)
def test_a_statement_ends_with_its_last_assignment(statement, end):
    assert stated(statement + end) == f"{statement} :="
    assert stated(f"{statement} :=\n  by\n  ") == f"{statement} :="


PROOF = f"by\n{TACTICS}".rstrip()
OUTPUT = "```text\n$ lean double.lean\nwarning: theorem double is unused\n```\n"
READ = {  # completion: its proof
    # Statements may differ in space; assignments within are counted.
    "theorem  double(n:Nat)(h:n=7): 2*n%2=0:=by omega": "by omega",
    # The last block counts, the last with the theorem more.
    f"First\n```lean\n  simp\n```\nBetter:\n```\n{TACTICS}```\nDone.": PROOF,
    f"```lean\n{HEAD} := by\n  sorry\n```\n```lean\n{WHOLE}```\n{OUTPUT}": PROOF,
    "1. So\n   ```lean\n   omega\n   ```\n": "by\n   omega",
    # What stands before the theorem is left out.
    **{
        before + WHOLE: PROOF
        for before in (
            "",
            "import Mathlib\n\nset_option maxHeartbeats 400000\n\nopen Nat Real\n\n",
            "/-- theorem double : True := by trivial /- := -/ -/\n",
            "-- theorem double : True := by trivial\n",
            "open Nat in\n",
            "set_option maxHeartbeats 0 in ",
            "@[simp] private ",
            'def s := "theorem double : True := by trivial"\n',
            "The theorem double is shown thus:\n\n",
        )
    },
    # Questions to Lean, before and behind.
    f"#check Nat\n{WHOLE}\n#check double\n#print axioms\n    double\n-- so\n#eval 1": PROOF,
    f"```lean\n{TACTICS}\n#check double\n```": PROOF,
    # `by` stands where it likes, and may come again.
    f"{HEAD}\n  := by\n  omega": "by\n  omega",
    f"{HEAD} :=\n  by\n  omega": "by\n  omega",
    f"{HEAD} /- := -/ := -- :=\n by omega": "-- :=\n by omega",
    **{f"{again}\n{TACTICS}": PROOF for again in ("by", ":= by", "\n:=\n by")},
    # Fences of any kind, that open or close in the middle of a line.
    f"Here is the proof: ```lean\n{WHOLE}```\nDone.": PROOF,
    f"The proof:```\n{TACTICS.rstrip()}```\nDone.": PROOF,
    f"~~~lean\n{WHOLE}~~~\n{OUTPUT}": PROOF,
    f"````lean4\n/-- ```\nx\n``` -/\n{WHOLE}````\nprose": PROOF,
    f"So ```omega``` does it:\n```lean\n{TACTICS}```": PROOF,
    # Fences that are never closed, or were never opened.
    f"```lean\n{TACTICS}": PROOF,
    f"````lean\n{TACTICS}````\nprose": PROOF,
    f"{TACTICS}```\n": PROOF,
    **{f"{HEAD} := {term}": term for term in ("foo h", "fun x =>\n  foo x", "(by omega)")},
}


LEMMA = "lemma x.half (n : Nat) : n ≤ 2 * n := by omega\n"


@pytest.mark.parametrize(
    ("completion", "proof", "is_used"),
    [
        (f"{LEMMA}{WHOLE}", "by exact x.half.foo n", True),
        (f"```lean\n{LEMMA}```\n```lean\n{WHOLE}```", "by have := x.half 3", True),
        (f"{WHOLE}@[simp] private {LEMMA}", f"by\n{TACTICS}{LEMMA}", True),
        (f"{LEMMA}{WHOLE}", "by -- x.half\n  omega", False),
        (f"{LEMMA}{WHOLE}", "by exact x.halfway", False),
        (f"The lemma omega says it.\n{WHOLE}", "by omega", False),
        (WHOLE, "by exact double n h", False),
    ],
)
def test_lemmas_beside_the_theorem_are_noticed(completion, proof, is_used):
    assert uses_lemmas("double", completion, proof) == is_used


class TestReadings:
    def test_tactics_stay_as_they_are(self):
        for tactics in (TACTICS, "skip\nomega", "cases h\n  skip\nomega"):
            assert readings("double", f"{HEAD} :=", tactics) == [f" by\n{tactics}"]

    @pytest.mark.parametrize("completion", READ)
    def test_proofs_are_found(self, completion):
        assert read(completion) == [READ[completion]]

    @pytest.mark.parametrize("proof", [TACTICS, WHOLE])
    def test_a_fence_that_is_never_closed_may_end_the_proof(self, proof):
        assert read(f"{proof}```\nThis proves the theorem.")[1:] == [PROOF]
        for prose in ("By omega:", f"We show `{HEAD} := by` thus:"):
            assert read(f"{prose}\n```lean\n{proof}")[0] == PROOF

    def test_assignments_in_the_statement_are_counted(self):
        assert read(f"{LET} := by\n  intro m; omega", LET) == ["by\n  intro m; omega"]

    def test_columns_are_kept(self):
        (proof,) = readings("double", f"{HEAD} :=", f"{HEAD} := by skip\n{' ' * 24}omega")
        skip, omega = proof.split("\n")[-2:]
        assert skip.index("skip") == omega.index("omega") == 24
        assert readings("double", f"{HEAD} :=", "\n:= by skip") == ["\n   by skip"]

    def test_a_first_line_that_lost_its_indentation_has_two_readings(self):
        for space in (" ", "  "):
            tactics = f"cases h\n{space}skip\n{space}  omega"
            proofs = readings("double", f"{HEAD} :=", tactics)
            assert proofs == [f" by\n{tactics}", f" by\n{space}{tactics}"]

    def test_another_theorem_is_not_taken_for_this_one(self):
        for name in ("double_again", "double'", "double.x"):
            text = f"theorem {name} : 1 = 1 := by\n  rfl\n"
            assert readings("double", f"{HEAD} :=", text)[0] == f" by\n{text}"

    @pytest.mark.parametrize("ends", ["\n", "\r\n"])
    def test_a_theorem_in_prose_and_fences(self, ends):
        text = f'As "it" is clear:\n```lean4\n{WHOLE}```\nDone.'.replace("\n", ends)
        assert read(text)[0].split() == f"by\n{TACTICS}".split()

    @pytest.mark.parametrize(
        "piece", ["/- ", '\\"', "```\n", "theorem ", "theorem double ", " := ", "-- "]
    )
    def test_long_texts_are_read_in_no_time(self, piece):
        assert read(piece * (1_000_000 // len(piece)))
