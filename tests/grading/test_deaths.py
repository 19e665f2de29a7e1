"""A grader that died is asked again; a second death is a verdict without reward."""

import json
from contextlib import suppress

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.cli import run
from rapid.grading import verdicts
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.math.grader import MathGrader
from rapid.grading.pool import SteadyGrader

PROBLEM = MathProblem(unique_id="half", problem="", answer="\\frac{1}{2}")


class Mortal:
    """A grader that dies over a completion as often as it is told to, and else passes it."""

    def __init__(self, deaths: dict[str, int] | None = None):
        self.deaths = deaths or {}
        self.graded: list[str] = []
        self.prepared = 0

    def prepare(self, problem):
        self.prepared += 1
        if self.prepared == 1:
            raise GraderDied("while it prepared")

    def grade(self, problem, completion):
        self.graded.append(completion)
        if self.deaths.get(completion, 0) >= self.graded.count(completion):
            raise GraderDied(f"over {completion}")
        return verdicts.verdict(verdicts.PASSED)


def grade(grader: SteadyGrader, *completions: str) -> list[str]:
    return [grader.grade(PROBLEM, completion).reason for completion in completions]


class TestSteadyGrader:
    def test_verdicts_are_counted_by_reason_and_deaths_not_remembered(self):
        mortal = Mortal({"a": 2, "b": 1})
        grader = SteadyGrader("math", lambda: mortal)
        assert grade(grader, "a", "b", "c", "a") == ["infrastructure", *["passed"] * 3]
        assert grader.reasons == {"infrastructure": 1, "passed": 3}
        assert mortal.graded == ["a", "a", "b", "b", "c", "a"]

    def test_a_death_while_a_problem_is_prepared_costs_nothing(self):
        mortal = Mortal()
        SteadyGrader("math", lambda: mortal).prepare(PROBLEM)
        assert mortal.prepared == 2

    @pytest.mark.parametrize(("graded", "most"), [(0, 1), (198, 2), (296, 2), (297, 3)])
    def test_more_than_one_and_one_percent_end_the_job(self, graded, most):
        doomed = {f"dead {i}": 2 for i in range(most + 1)}
        grader = SteadyGrader("math", lambda: Mortal(doomed))
        grade(grader, *["fine"] * graded)
        assert grade(grader, *list(doomed)[:-1]) == ["infrastructure"] * most
        with pytest.raises(GradingFailed) as raised:
            grade(grader, list(doomed)[-1])
        total = graded + most + 1
        assert f"grader of math died twice over each of {most + 1} of {total} " in str(raised.value)
        assert f"over dead {most}" in str(raised.value)

    def test_a_job_that_has_failed_fails_in_every_thread(self):
        grader = SteadyGrader("math", lambda: Mortal({"a": 9, "b": 9}))
        with suppress(GradingFailed):
            grade(grader, "a", "b")
        with pytest.raises(GradingFailed, match="over b"):
            grade(grader, "fine")

    @pytest.mark.parametrize("name", BENCHMARKS)
    def test_every_benchmark_has_one(self, name):
        assert isinstance(BENCHMARKS[name].grader(1.0), SteadyGrader)


@pytest.fixture
def doomed(tmp_path, monkeypatch):
    """The command that grades so many completions over which the mathematics grader dies."""

    def die(*_):
        raise GraderDied("killed in a test")

    def command(count: int) -> list[str]:
        rows = [{"id": "1", "completion": f"\\boxed{{{n + 2}}}"} for n in range(count)]
        (tmp_path / "c").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "p").write_text('{"problem": "?", "answer": "1", "unique_id": "1"}\n')
        files = ["--problems", str(tmp_path / "p"), "--completions", str(tmp_path / "c")]
        return ["grade", "--benchmark", "math", "--workers", "1", *files]

    monkeypatch.setattr(MathGrader, "_compare", die)
    return command


def test_rapid_grade_says_what_was_not_graded_until_it_is_too_much(doomed, capsys):
    assert run(doomed(2)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "died twice over each of 2 of 2 completions" in printed.err
    assert "killed in a test" in printed.err
    assert run(doomed(1)) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"id": "1", "reward": None, "reason": "infrastructure"}
    assert "1 of 1 not graded" in printed.err
