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
from rapid.grading.pool import GraderPool
from tests.grading.lean.test_extract import HEAD, LET_HEAD, TACTICS, THEOREM

PROBLEM = LeanProblem(name="double", formal_statement=f"{HEAD} := by\n")


@pytest.fixture(scope="module")
def grader():
    with BENCHMARKS["minif2f"].build_grader(20) as grader:
        yield grader


FORMS = {
    "tactics whose first line was stripped": TACTICS.strip(),
    "the theorem with a header": f"import Mathlib\nopen Nat Real\n\n/-- Even. -/\n{THEOREM}",
    "a term": f"{HEAD} :=\n  have k := h\n  (by omega)",
    "aligned tactics": f"{HEAD} := by have k := h\n{' ' * 24}omega",
    "output after it": f"```lean\n{THEOREM}```\nprints\n```\nno errors\n```\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_proof_is_rewarded_in_any_form(grader, form):
    assert grader.grade(PROBLEM, FORMS[form]).reason == verdicts.PASSED


def test_a_statement_with_assignments_is_proved(grader):
    problem = change_problem(formal_statement=f"{LET_HEAD} := by\n")
    for completion in ("intro m; omega", f"```lean\n{LET_HEAD} := by\n  intro m\n  omega\n```"):
        assert grader.grade(problem, completion).reason == verdicts.PASSED


def test_a_proof_that_needs_a_lemma_beside_the_theorem_is_forbidden(grader):
    lemma = "lemma half (n : Nat) : 2 * n % 2 = 0 := by omega\n"
    for completion in (f"{lemma}{HEAD} := half n", f"{THEOREM}{lemma}example := half"):
        assert grader.grade(PROBLEM, completion).reason == verdicts.FORBIDDEN
    assert grader.grade(PROBLEM, lemma + THEOREM).reason == verdicts.PASSED
    assert grader.grade(PROBLEM, f"{HEAD} := half n").reason == verdicts.WRONG_ANSWER


def change_problem(**changes) -> LeanProblem:
    return PROBLEM.model_copy(update=changes)


FALSE = change_problem(formal_statement="theorem double (n : Nat) : n = n + 1 := by\n")
CHEATS = {
    "an easier statement": "theorem double (n : Nat) : n = n := by\n  rfl",
    "the easiest statement": "```lean\ntheorem double : True := trivial\n```",
    "another hypothesis": "variable (h : False)\ntheorem double (n : Nat) : n = n + 1 := h.elim",
    "an axiom before it": "axiom x : False\ntheorem double (n : Nat) : n = n + 1 := x.elim",
    "an axiom after it": "theorem double (n : Nat) : n = n + 1 := x.elim\naxiom x : False",
    "another meaning": "local infix:50 \" = \" => fun _ _ => True\ntheorem double (n : Nat) : n = n + 1 := trivial",
    "a second theorem": "theorem double (n : Nat) : n = n + 1 := by sorry\ntheorem double : True := trivial",
    "a namespace": "namespace X\ntheorem double : True := trivial\nend X",
    "an answer": '{"ready": true}\n{"id": "0", "ok": true, "why": "passed", "messages": []}',
    "half a surrogate pair": "theorem double (n : Nat) : n = n + 1 := \ud800",
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_not_rewarded(grader, cheat):
    assert grader.grade(FALSE, CHEATS[cheat]).reward == 0


class FakeChecker:
    """Stands in for a Lean checker, and finds every proof wrong."""

    def __init__(self, timeout, header, unsafe):
        assert not unsafe
        self.header = header

    def wait_ready(self):
        pass

    def check(self, name, statement, proof, seconds):
        return verdicts.build_verdict(verdicts.WRONG_ANSWER)

    def stop(self):
        pass


def test_each_header_has_a_checker_and_the_oldest_one_is_stopped(monkeypatch):
    events = []

    class RecordingChecker(FakeChecker):
        def __init__(self, timeout, header, unsafe):
            super().__init__(timeout, header, unsafe)
            events.append(f"+{header}")

        def stop(self):
            events.append(f"-{self.header}")

    monkeypatch.setattr(lean_grader, "LeanChecker", RecordingChecker)
    with lean_grader.LeanGrader(20) as grader:
        for header in "ABACBB":
            grader.grade(change_problem(header=header), "omega")
    assert events == ["+A", "+B", "+C", "-B", "+B", "-A", "-C", "-B"]


def test_the_candidates_of_a_completion_share_its_time_limit(monkeypatch):
    seconds_given, clock = [], SimpleNamespace(now=0.0)

    class SlowChecker(FakeChecker):
        is_ready = False

        def wait_ready(self):
            clock.now += 0 if self.is_ready else 5  # the time of starting Lean is not the proof's
            self.is_ready = True

        def check(self, name, statement, proof, seconds):
            self.wait_ready()
            seconds_given.append(seconds)
            clock.now += 3
            return verdicts.build_verdict(reason)

    monkeypatch.setattr(lean_grader, "LeanChecker", SlowChecker)
    monkeypatch.setattr(lean_grader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    for timeout, reason, expected in (
        (4.0, verdicts.WRONG_ANSWER, [4.0, 1.0]),
        (3.0, verdicts.WRONG_ANSWER, [3.0]),
        (10.0, verdicts.TIMEOUT, [10.0]),  # no other candidate is tried after a timeout
    ):
        seconds_given.clear()
        with lean_grader.LeanGrader(timeout) as grader:
            assert grader.grade(PROBLEM, "skip\n  omega").reason == reason
        assert seconds_given == expected


def test_a_statement_that_needs_mathlib_is_an_error_with_the_version_of_lean(grader):
    statement = "theorem double (x : ℝ) : x = x := by\n"
    with pytest.raises(BadStatement, match=r"the statement of double is not accepted by Lean .*: "):
        grader.grade(change_problem(formal_statement=statement), "rfl")


class RecordingGrader:
    """A Lean grader that records its requests."""

    def __init__(self, answer_count: int):
        self.answer_count_when_ready, self.requests = answer_count, []

    def _get_checker(self, header):
        return self

    def wait_ready(self):
        self.answered = self.answer_count_when_ready

    def prepare(self, problem):
        lean_grader.LeanGrader.prepare(self, problem)

    def elaborate_statement(self, name, statement):
        self.requests.append((name, statement))

    def grade(self, problem, completion):
        self.requests.append(completion)
        return verdicts.build_verdict(verdicts.PASSED)

    def warm_up(self, samples):
        self.sample_count = len(samples)
        lean_grader.LeanGrader.warm_up(self, samples)


@pytest.mark.parametrize("answer_count", [0, 1000])
def test_a_warm_up_elaborates_all_statements_and_grades_with_a_new_lean(answer_count):
    lean = RecordingGrader(answer_count)
    grader = GraderPool("minif2f", lambda: lean)
    problems = [draw(Random(n), f"p{n}").problem for n in range(3)]
    BENCHMARKS["minif2f"].warm_up(grader, problems)
    assert lean.requests[:3] == [
        (problem.name, lean_grader.cut_at_last_assignment(problem.formal_statement))
        for problem in problems
    ]
    warm_up_proofs = lean.requests[3:]
    assert len(warm_up_proofs) == (0 if answer_count else lean.sample_count)
    assert lean.sample_count > 30
    assert grader.reasons.total() == 0
    if not answer_count:
        parts_of_proofs = ("exact ⟨", "rfl", "h₀ _", "n.rec", "omega", "exact h _")
        assert all(any(part in text for text in warm_up_proofs) for part in parts_of_proofs)


def test_a_warm_up_with_problems_of_mathlib_only_starts_lean():
    lean = RecordingGrader(0)
    problem = draw(Random(0), "p0").problem.model_copy(update={"header": "import Mathlib\n"})
    BENCHMARKS["minif2f"].warm_up(GraderPool("minif2f", lambda: lean), [problem])
    assert lean.requests == [""]
