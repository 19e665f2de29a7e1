"""Extraction of proofs from completions, in any form in which models write them."""

import time

import pytest

from rapid.grading.lean.extract import cut_at_last_assignment, extract_candidate_proofs, uses_lemmas

HEAD = "theorem double (n : Nat) (h : n = 7) :\n    2 * n % 2 = 0"
LET_HEAD = "theorem double (n : Nat := 7) : let m := 2 * n; m % 2 = 0"
TACTICS = "  have k := h\n  omega\n"
THEOREM = f"{HEAD} := by\n{TACTICS}"


def read_proofs(completion: str, head: str = HEAD) -> list[str]:
    """Return the proofs of a completion, without the space around them."""
    return [text.strip() for text in extract_candidate_proofs("double", f"{head} :=", completion)]


@pytest.mark.parametrize(
    ("statement", "ending"),
    [
        *((HEAD, ending) for ending in (" := by", " := by\n  ", " := sorry", " := by sorry")),
        (LET_HEAD, " := by"),  # whose statement contains assignments
        (HEAD, " := by -- so := it is"),
    ],
)
def test_a_statement_ends_with_its_last_assignment(statement, ending):
    assert cut_at_last_assignment(statement + ending) == f"{statement} :="
    assert cut_at_last_assignment(f"{statement} :=\n  by\n  ") == f"{statement} :="


PROOF = f"by\n{TACTICS}".rstrip()
OUTPUT = "```text\n$ lean double.lean\nwarning: theorem double is unused\n```\n"
PROOFS_BY_COMPLETION = {  # the proof of each completion
    # Statements may differ in spaces. Assignments within the statement are counted.
    "theorem  double(n:Nat)(h:n=7): 2*n%2=0:=by omega": "by omega",
    # The last block with the theorem is preferred, or else the last block.
    f"First\n```lean\n  simp\n```\nBetter:\n```\n{TACTICS}```\nDone.": PROOF,
    f"```lean\n{HEAD} := by\n  sorry\n```\n```lean\n{THEOREM}```\n{OUTPUT}": PROOF,
    "1. So\n   ```lean\n   omega\n   ```\n": "by\n   omega",
    # Text before the theorem is left out.
    **{
        before + THEOREM: PROOF
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
    # Commands that query Lean, before and after the theorem, are left out.
    f"#check Nat\n{THEOREM}\n#check double\n#print axioms\n    double\n-- so\n#eval 1": PROOF,
    f"```lean\n{TACTICS}\n#check double\n```": PROOF,
    # `by` may stand in any place, and may be repeated.
    f"{HEAD}\n  := by\n  omega": "by\n  omega",
    f"{HEAD} :=\n  by\n  omega": "by\n  omega",
    f"{HEAD} /- := -/ := -- :=\n by omega": "-- :=\n by omega",
    **{f"{opening}\n{TACTICS}": PROOF for opening in ("by", ":= by", "\n:=\n by")},
    # Fences are of any kind, and may open or close in the middle of a line.
    f"Here is the proof: ```lean\n{THEOREM}```\nDone.": PROOF,
    f"The proof:```\n{TACTICS.rstrip()}```\nDone.": PROOF,
    f"~~~lean\n{THEOREM}~~~\n{OUTPUT}": PROOF,
    f"````lean4\n/-- ```\nx\n``` -/\n{THEOREM}````\nprose": PROOF,
    f"So ```omega``` does it:\n```lean\n{TACTICS}```": PROOF,
    # Fences may be left open, or be closed only.
    f"```lean\n{TACTICS}": PROOF,
    f"````lean\n{TACTICS}````\nprose": PROOF,
    f"{TACTICS}```\n": PROOF,
    **{f"{HEAD} := {term}": term for term in ("foo h", "fun x =>\n  foo x", "(by omega)")},
}


LEMMA = "lemma x.half (n : Nat) : n ≤ 2 * n := by omega\n"


@pytest.mark.parametrize(
    ("completion", "proof", "is_used"),
    [
        (f"{LEMMA}{THEOREM}", "by exact x.half.foo n", True),
        (f"```lean\n{LEMMA}```\n```lean\n{THEOREM}```", "by have := x.half 3", True),
        (f"{THEOREM}@[simp] private {LEMMA}", f"by\n{TACTICS}{LEMMA}", True),
        (f"{LEMMA}{THEOREM}", "by -- x.half\n  omega", False),
        (f"{LEMMA}{THEOREM}", "by exact x.halfway", False),
        (f"The lemma omega says it.\n{THEOREM}", "by omega", False),
        (THEOREM, "by exact double n h", False),
    ],
)
def test_a_proof_that_uses_a_lemma_beside_the_theorem_is_detected(completion, proof, is_used):
    assert uses_lemmas("double", completion, proof) == is_used


def test_a_word_of_many_parts_is_read_quickly():
    start = time.monotonic()
    assert not uses_lemmas("double", f"{LEMMA}{THEOREM}", "a." * 500_000)
    assert time.monotonic() - start < 10  # 0.3 seconds, and a minute if each part took longer


class TestCandidates:
    def test_tactics_are_not_changed(self):
        for tactics in (TACTICS, "skip\nomega", "cases h\n  skip\nomega"):
            assert extract_candidate_proofs("double", f"{HEAD} :=", tactics) == [f" by\n{tactics}"]

    @pytest.mark.parametrize("completion", PROOFS_BY_COMPLETION)
    def test_the_proof_of_a_completion_is_extracted(self, completion):
        assert read_proofs(completion) == [PROOFS_BY_COMPLETION[completion]]

    @pytest.mark.parametrize("proof", [TACTICS, THEOREM])
    def test_an_unmatched_fence_may_end_or_begin_the_proof(self, proof):
        assert read_proofs(f"{proof}```\nThis proves the theorem.")[1:] == [PROOF]
        for prose in ("By omega:", f"We show `{HEAD} := by` thus:"):
            assert read_proofs(f"{prose}\n```lean\n{proof}")[0] == PROOF

    def test_assignments_in_the_statement_are_counted(self):
        assert read_proofs(f"{LET_HEAD} := by\n  intro m; omega", LET_HEAD) == [
            "by\n  intro m; omega"
        ]

    def test_tactics_keep_their_columns(self):
        (proof,) = extract_candidate_proofs(
            "double", f"{HEAD} :=", f"{HEAD} := by skip\n{' ' * 24}omega"
        )
        skip, omega = proof.split("\n")[-2:]
        assert skip.index("skip") == omega.index("omega") == 24
        assert extract_candidate_proofs("double", f"{HEAD} :=", "\n:= by skip") == ["\n   by skip"]

    def test_tactics_whose_first_line_lost_its_indentation_give_two_candidates(self):
        for space in (" ", "  "):
            tactics = f"cases h\n{space}skip\n{space}  omega"
            proofs = extract_candidate_proofs("double", f"{HEAD} :=", tactics)
            assert proofs == [f" by\n{tactics}", f" by\n{space}{tactics}"]

    def test_a_theorem_with_another_name_is_not_extracted(self):
        for name in ("double_again", "double'", "double.x"):
            text = f"theorem {name} : 1 = 1 := by\n  rfl\n"
            assert extract_candidate_proofs("double", f"{HEAD} :=", text)[0] == f" by\n{text}"

    @pytest.mark.parametrize("line_end", ["\n", "\r\n"])
    def test_a_theorem_is_extracted_from_prose_and_fences(self, line_end):
        text = f'As "it" is clear:\n```lean4\n{THEOREM}```\nDone.'.replace("\n", line_end)
        assert read_proofs(text)[0].split() == f"by\n{TACTICS}".split()

    @pytest.mark.parametrize(
        "repeated_text", ["/- ", '\\"', "```\n", "theorem ", "theorem double ", " := ", "-- "]
    )
    def test_a_megabyte_of_text_is_read_quickly(self, repeated_text):
        assert read_proofs(repeated_text * (1_000_000 // len(repeated_text)))

    @pytest.mark.parametrize(
        "text", [f"~~~{' ' * 999_990}x!", f"{'`' * 500_000}\n{'`' * 499_990}x"]
    )
    def test_a_megabyte_that_looks_like_a_fence_is_read_quickly(self, text):
        assert read_proofs(text)
