"""The grader of Lean proofs: raw completions, cheats, headers, and the time of a proof."""

from random import Random
from types import SimpleNamespace

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.minif2f.made import draw
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading import verdicts
from rapid.grading.lean import BadStatement
from rapid.grading.lean import grader as lean_grader
from rapid.grading.pool import SteadyGrader
from tests.grading.lean.test_extract import HEAD, LET, TACTICS, WHOLE

PROBLEM = LeanProblem(name="double", formal_statement=f"{HEAD} := by\n")


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
