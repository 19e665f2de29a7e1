"""MiniF2F: what of a completion is the proof, and how raw completions are graded."""

import shutil
from random import Random
from types import SimpleNamespace

import pytest

from rapid.benchmarks import BENCHMARKS, minif2f
from rapid.benchmarks.minif2f.made import draw
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading import verdicts
from rapid.grading.lean import BadStatement, LeanUnavailable
from rapid.grading.lean import grader as lean_grader
from rapid.grading.lean.extract import readings, stated, uses_lemmas
from rapid.grading.policy import STRICT
from rapid.grading.pool import SteadyGrader

HEAD = "theorem double (n : Nat) (h : n = 7) :\n    2 * n % 2 = 0"
PROBLEM = LeanProblem(name="double", formal_statement=f"{HEAD} := by\n")
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


@pytest.fixture(scope="module")
def grader():
    with BENCHMARKS["minif2f"].grader(20) as grader:
        yield grader


FORMS = {
    "tactics whose first line was stripped": TACTICS.strip(),
    "the theorem with a header": f"import Mathlib\nopen Nat Real\n\n/-- Even. -/\n{WHOLE}",
    "a term": f"{HEAD} :=\n  have k := h\n  (by omega)",
    "aligned tactics": f"{HEAD} := by have k := h\n{' ' * 24}omega",
    "output behind it": f"```lean\n{WHOLE}```\nprints\n```\nno errors\n```\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_proof_is_rewarded_in_any_form(grader, form):
    assert grader.grade(PROBLEM, FORMS[form]).reason == verdicts.PASSED


def test_a_statement_with_assignments_is_proved(grader):
    let = problem(formal_statement=f"{LET} := by\n")
    for completion in ("intro m; omega", f"```lean\n{LET} := by\n  intro m\n  omega\n```"):
        assert grader.grade(let, completion).reason == verdicts.PASSED


def test_a_proof_that_needs_a_lemma_beside_the_theorem_is_forbidden(grader):
    lemma = "lemma half (n : Nat) : 2 * n % 2 = 0 := by omega\n"
    for completion in (f"{lemma}{HEAD} := half n", f"{WHOLE}{lemma}example := half"):
        assert grader.grade(PROBLEM, completion).reason == verdicts.FORBIDDEN
    assert grader.grade(PROBLEM, lemma + WHOLE).reason == verdicts.PASSED
    assert grader.grade(PROBLEM, f"{HEAD} := half n").reason == verdicts.WRONG_ANSWER


def problem(**changes) -> LeanProblem:
    return PROBLEM.model_copy(update=changes)


FALSE = problem(formal_statement="theorem double (n : Nat) : n = n + 1 := by\n")
CHEATS = {
    "an easier statement": "theorem double (n : Nat) : n = n := by\n  rfl",
    "the easiest": "```lean\ntheorem double : True := trivial\n```",
    "a hypothesis more": "variable (h : False)\ntheorem double (n : Nat) : n = n + 1 := h.elim",
    "an axiom before": "axiom x : False\ntheorem double (n : Nat) : n = n + 1 := x.elim",
    "an axiom behind": "theorem double (n : Nat) : n = n + 1 := x.elim\naxiom x : False",
    "another meaning": "local infix:50 \" = \" => fun _ _ => True\ntheorem double (n : Nat) : n = n + 1 := trivial",
    "a second theorem": "theorem double (n : Nat) : n = n + 1 := by sorry\ntheorem double : True := trivial",
    "a namespace": "namespace X\ntheorem double : True := trivial\nend X",
    "an answer": '{"ready": true}\n{"id": "0", "ok": true, "why": "passed", "messages": []}',
    "half a surrogate pair": "theorem double (n : Nat) : n = n + 1 := \ud800",
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_not_rewarded(grader, cheat):
    assert grader.grade(FALSE, CHEATS[cheat]).reward == 0


class Checker:
    """Stands in for Lean, and finds every proof wrong."""

    def __init__(self, timeout, header, unsafe):
        assert not unsafe
        self.header = header

    def start(self):
        return self

    def wait_ready(self):
        pass

    def check(self, name, statement, proof, seconds):
        return verdicts.verdict(verdicts.WRONG_ANSWER)

    def stop(self):
        pass


def test_each_header_has_its_checker_and_the_oldest_goes(monkeypatch):
    events = []

    class Noted(Checker):
        def start(self):
            events.append(f"+{self.header}")
            return self

        def stop(self):
            events.append(f"-{self.header}")

    monkeypatch.setattr(lean_grader, "LeanChecker", Noted)
    with lean_grader.LeanGrader(20) as grader:
        for header in "ABACBB":
            grader.grade(problem(header=header), "omega")
    assert events == ["+A", "+B", "+C", "-B", "+B", "-A", "-C", "-B"]


def test_readings_share_their_time(monkeypatch):
    seconds_given, clock = [], SimpleNamespace(now=0.0)

    class Slow(Checker):
        is_ready = False

        def wait_ready(self):
            clock.now += 0 if self.is_ready else 5  # not the proof's
            self.is_ready = True

        def check(self, name, statement, proof, seconds):
            self.wait_ready()
            seconds_given.append(seconds)
            clock.now += 3
            return verdicts.verdict(reason)

    monkeypatch.setattr(lean_grader, "LeanChecker", Slow)
    monkeypatch.setattr(lean_grader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    for timeout, reason, expected in (
        (4.0, verdicts.WRONG_ANSWER, [4.0, 1.0]),
        (3.0, verdicts.WRONG_ANSWER, [3.0]),
        (10.0, verdicts.TIMEOUT, [10.0]),  # another reading would mend nothing
    ):
        seconds_given.clear()
        with lean_grader.LeanGrader(timeout) as grader:
            assert grader.grade(PROBLEM, "skip\n  omega").reason == reason
        assert seconds_given == expected


def test_a_statement_that_needs_mathlib_is_an_error_that_names_the_lean(grader):
    statement = "theorem double (x : ℝ) : x = x := by\n"
    with pytest.raises(BadStatement, match=r"double: not accepted by Lean .*: "):
        grader.grade(problem(formal_statement=statement), "rfl")


def test_without_lean_the_task_says_why(monkeypatch):
    def none():
        raise LeanUnavailable("npm cannot reach its registry")

    monkeypatch.setattr(minif2f, "ensure_lean", none)
    assert BENCHMARKS["minif2f"].unavailable() == "npm cannot reach its registry"


def test_the_hub_s_problems_need_mathlib():
    if shutil.which("lean"):
        pytest.skip("a native Lean may have Mathlib")
    with pytest.raises(LeanUnavailable, match=r"imports Mathlib: .* To grade Mathlib problems"):
        BENCHMARKS["minif2f"].try_hub(STRICT)


class Recording:
    """A Lean grader that notes what it is asked."""

    def __init__(self, answered: int):
        self.when_ready, self.asked = answered, []

    def _checker(self, header):
        return self

    def wait_ready(self):
        self.answered = self.when_ready

    def prepare(self, problem):
        lean_grader.LeanGrader.prepare(self, problem)

    def state(self, name, statement):
        self.asked.append((name, statement))

    def grade(self, problem, completion):
        self.asked.append(completion)
        return verdicts.verdict(verdicts.PASSED)

    def rehearse(self, exercises):
        self.exercises = len(exercises)
        lean_grader.LeanGrader.rehearse(self, exercises)


@pytest.mark.parametrize("answered", [0, 1000])
def test_before_the_clock_starts_lean_is_as_warm_as_after_earlier_jobs(answered):
    lean = Recording(answered)
    grader = SteadyGrader("minif2f", lambda: lean)
    problems = [draw(Random(n), f"p{n}").problem for n in range(3)]
    BENCHMARKS["minif2f"].rehearse(grader, problems)
    assert lean.asked[:3] == [
        (one.name, lean_grader.stated(one.formal_statement)) for one in problems
    ]
    rehearsed = lean.asked[3:]
    assert len(rehearsed) == (0 if answered else lean.exercises) and lean.exercises > 30
    assert grader.reasons.total() == grader.hits == 0
    if not answered:
        kinds = ("exact ⟨", "rfl", "h₀ _", "n.rec", "omega", "exact h _")
        assert all(any(kind in text for text in rehearsed) for kind in kinds)


def test_problems_of_mathlib_only_start_lean():
    lean = Recording(0)
    problem = draw(Random(0), "p0").problem.model_copy(update={"header": "import Mathlib\n"})
    BENCHMARKS["minif2f"].rehearse(SteadyGrader("minif2f", lambda: lean), [problem])
    assert lean.asked == [""]
