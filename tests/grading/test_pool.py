"""The pool of graders: concurrency, cached verdicts, and graders that die."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.cli import run
from rapid.grading import limits, verdicts
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.math.grader import MathGrader
from rapid.grading.pool import GraderPool

FIRST, SECOND = (MathProblem(unique_id=name, problem="", answer="1") for name in "ab")


class FakeGrader:
    """A grader that passes "1" and every text that is not a number. It records its calls in `log`.

    Args:
        deaths: number of deaths for each completion.
        starts: whether it can be started.
        wait: called before each verdict.
    """

    def __init__(self, log, deaths=None, starts=True, wait=lambda: None):
        self.log, self.deaths, self.starts, self.wait = log, deaths or {}, starts, wait
        self.busy = threading.Lock()

    def __enter__(self):
        if not self.starts:
            raise OSError("no sandbox")
        self.log.append("started")
        return self

    def __exit__(self, *_):
        self.log.append("ended")

    def describe_isolation(self):
        return "isolated"

    def prepare(self, problem):
        with self.occupied():
            self.record(f"prepared {problem.id}")

    def warm_up(self, samples):
        with self.occupied():
            self.record(f"warmed up with {samples}")

    def grade(self, problem, completion):
        with self.occupied():
            self.wait()
            if completion == "broken":
                raise ValueError("broken")
            self.record(f"{problem.id}: {completion}")
            is_right = completion == "1" or not completion.isdecimal()
            return verdicts.build_verdict(verdicts.PASSED if is_right else verdicts.WRONG_ANSWER)

    @contextmanager
    def occupied(self):
        assert self.busy.acquire(blocking=False), "two threads in one grader"
        try:
            yield
        finally:
            self.busy.release()

    def record(self, entry):
        self.log.append(entry)
        if self.deaths.get(entry.removeprefix("a: "), 0) >= self.log.count(entry):
            raise GraderDied(f"over {entry}")


def make_pool(size=1, **settings):
    log = []
    return GraderPool("math", lambda: FakeGrader(log, **settings), size), log


def grade(graders, *completions):
    return [graders.grade(FIRST, str(completion)).reason for completion in completions]


class TestConcurrency:
    @pytest.mark.parametrize(("size", "thread_count"), [(3, 3), (2, 8)])
    def test_all_graders_of_a_pool_work_at_the_same_time(self, size, thread_count):
        """Additional threads wait until a grader is free."""
        barrier = threading.Barrier(size)
        graders, _ = make_pool(size, wait=lambda: barrier.wait(5))
        with graders, ThreadPoolExecutor(thread_count) as executor:
            texts = [f"text {n}" for n in range(120)]
            assert [*executor.map(partial(grade, graders), texts)] == [["passed"]] * 120

    def test_a_grader_is_used_again_after_an_exception(self):
        graders, _ = make_pool()
        with graders:
            for _ in range(3):
                with pytest.raises(ValueError, match="broken"):
                    grade(graders, "broken")
            assert grade(graders, "right") == ["passed"]

    def test_started_graders_are_ended_if_another_fails_to_start(self):
        log = []
        fakes = iter([FakeGrader(log), FakeGrader(log), FakeGrader(log, starts=False)])
        graders = GraderPool("math", lambda: next(fakes), 3)
        with pytest.raises(OSError, match="no sandbox"), graders:
            pass
        assert log == ["started", "started", "ended", "ended"]

    def test_all_graders_prepare_a_problem_and_warm_up(self):
        graders, log = make_pool(2)
        with graders:
            graders.prepare(FIRST)
            graders.warm_up([])
        assert log.count("prepared a") == log.count("warmed up with []") == 2
        assert log.count("started") == log.count("ended") == 2
        assert graders.describe_isolation() == "isolated"

    def test_graders_are_prepared_when_they_are_free(self):
        """Three threads prepare and warm up all graders while others grade."""
        graders, log = make_pool(2, wait=lambda: time.sleep(0.001))
        calls = [partial(grade, graders, f"text {n}") for n in range(40)]
        calls[10:10] = [partial(graders.prepare, FIRST)] * 2 + [partial(graders.warm_up, [])]
        with graders, ThreadPoolExecutor(8) as executor:
            for call in [executor.submit(call) for call in calls]:
                call.result(10)
        assert log.count("prepared a") == 4 and log.count("warmed up with []") == 2

    @pytest.mark.parametrize("name", BENCHMARKS)
    def test_every_benchmark_uses_a_pool_of_graders(self, name):
        assert isinstance(BENCHMARKS[name].build_grader(1.0), GraderPool)


class TestCachedVerdicts:
    def test_a_repeated_completion_of_a_problem_is_graded_once(self):
        graders, log = make_pool()
        assert grade(graders, 1, 2, 1) == ["passed", "wrong_answer", "passed"]
        graders.grade(SECOND, "1")
        assert grade(graders, "\ud800") == ["unparsable"]  # half a character
        assert log == ["a: 1", "a: 2", "b: 1"]

    def test_the_oldest_verdicts_are_forgotten(self, monkeypatch):
        monkeypatch.setattr(limits, "MAX_CACHED_VERDICTS", 2)
        graders, log = make_pool()
        grade(graders, 1, 2, 3, 3, 2, 1)
        assert log == ["a: 1", "a: 2", "a: 3", "a: 1"]

    @pytest.mark.parametrize("deaths", [0, 1, 2])
    def test_threads_with_one_completion_share_its_verdict(self, deaths):
        """A death is no verdict, so the threads that waited grade the completion again."""
        may_go = threading.Event()
        graders, log = make_pool(deaths={"1": deaths}, wait=lambda: may_go.wait(30))
        with ThreadPoolExecutor(4) as threads:
            waiting = [threads.submit(grade, graders, 1) for _ in range(4)]
            may_go.set()
            reasons = [future.result()[0] for future in waiting]
        assert reasons.count("passed") >= 3
        assert set(reasons) <= {"passed", "infrastructure"}
        assert len(log) == 1 + deaths


class TestDeaths:
    def test_verdicts_are_counted_by_reason_and_deaths_are_not_cached(self):
        graders, log = make_pool(deaths={"x": 2, "y": 1})
        assert grade(graders, "x", "y", "z", "x") == ["infrastructure", *["passed"] * 3]
        assert graders.reasons == {"infrastructure": 1, "passed": 3}
        assert log == [f"a: {text}" for text in "xxyyzx"]

    def test_preparing_a_problem_is_repeated_after_a_death(self):
        graders, log = make_pool(deaths={"prepared a": 1})
        graders.prepare(FIRST)
        assert log == ["prepared a"] * 2

    @pytest.mark.parametrize(
        ("graded_count", "allowed_deaths"), [(0, 1), (198, 2), (296, 2), (297, 3)]
    )
    def test_more_deaths_than_one_plus_one_percent_end_the_job(self, graded_count, allowed_deaths):
        deadly_texts = [f"dead {n}" for n in range(allowed_deaths + 1)]
        graders, _ = make_pool(deaths=dict.fromkeys(deadly_texts, 2))
        grade(graders, *["fine"] * graded_count)
        assert grade(graders, *deadly_texts[:-1]) == ["infrastructure"] * allowed_deaths
        with pytest.raises(GradingFailed) as raised:
            grade(graders, deadly_texts[-1])
        total = graded_count + allowed_deaths + 1
        assert f"grader of math died twice in a row on {allowed_deaths + 1} of {total} " in str(
            raised.value
        )
        assert f"over a: dead {allowed_deaths}" in str(raised.value)

    def test_a_job_that_has_failed_fails_in_every_thread(self):
        graders, _ = make_pool(deaths={"x": 2, "y": 2})
        assert grade(graders, "x") == ["infrastructure"]
        for completion in ("y", "fine"):
            with pytest.raises(GradingFailed, match="over a: y"):
                grade(graders, completion)


@pytest.fixture
def make_dying_command(tmp_path, monkeypatch):
    """Return a function that makes a `rapid grade` command whose grader dies at every completion."""

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


def test_rapid_grade_counts_ungraded_completions_and_fails_if_they_are_too_many(
    make_dying_command, capsys
):
    assert run(make_dying_command(2)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "died twice in a row on 2 of 2 completions" in printed.err
    assert "killed in a test" in printed.err
    assert run(make_dying_command(1)) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"id": "1", "reward": None, "reason": "infrastructure"}
    assert "1 of 1 completions were not graded" in printed.err
