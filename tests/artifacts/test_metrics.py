"""Metrics: keys, order and bounds of a run's files, look-up in logs, and means over steps."""

import json

import pytest

from rapid.artifacts.evaluations import Evaluation, ProblemScore
from rapid.artifacts.metrics import METRICS, select_metrics, summarize_steps
from rapid.artifacts.runs import RunSummary, StepRecord

ROW = (
    '{"step":1,"seconds":0.5,"loss":0.25,"gradient_norm":2.0,"reward":1.0,"signal":0.0,'
    '"completion_length":21.0,"staleness":null,"clip_fraction":null,"weight":null,"kl":null,'
    '"run":0.0,"sampling":0.125,"grading":null,"backpropagation":null,"sync":0.0}'
)
SUMMARY = [
    "benchmark", "model", "algorithm", "seed", "status", "note", "runtime", "cpu", "waited",
    "stolen", "disturbed", "attempt", "interrupted", "lost", "optimizer_steps", "completions",
    "staleness", "clip_fraction", "run", "completion_length", "reward_first", "reward_last",
    "reasons", "peak_memory_mb", "precision", "pass_completions", "halvings", "hardware", "commit",
]  # fmt: skip
RUN = {"benchmark": "math", "model": "toy", "algorithm": "pg", "seed": 1}


def test_step_row_is_written_byte_for_byte_as_read():
    assert StepRecord.model_validate_json(ROW).model_dump_json() == ROW


def test_summary_has_its_keys_in_order():
    assert list(RunSummary(**RUN).model_dump()) == SUMMARY


@pytest.mark.parametrize(
    ("name", "value"), [("run", 1.5), ("reward_last", 2.0), ("completion_length", -1.0)]
)
def test_summary_statistic_has_the_bounds_of_its_metric(name, value):
    with pytest.raises(ValueError, match=name):
        RunSummary(**RUN, **{name: value})


def test_metrics_are_selected_from_logs_by_name():
    logs = {
        "loss": 0.5,
        "grad_norm": 2.0,
        "rapid/accuracy/math": 0.75,
        "rapid/accuracy/length": 0.25,  # another reward function's
        "rapid/length": 6.0,
        "rapid/weight": 1.5,
        "rapid/weights": 9.0,
        "kl": 9.0,  # TRL's
    }
    metrics = {name: value for name, value in select_metrics(logs).items() if value is not None}
    assert metrics == {
        "loss": 0.5,
        "gradient_norm": 2.0,
        "reward": 0.75,
        "completion_length": 6.0,
        "weight": 1.5,
    }
    assert select_metrics(logs).keys() == METRICS.keys()


def test_statistics_are_means_over_the_steps_that_have_the_metric():
    rewards = [*[0.0] * 2, None, *[0.5] * 15, 1.0, 0.5]  # a tenth of them is two
    stalenesses = [None, 0.5, 1.0, *[None] * 17]
    steps = [
        StepRecord(**json.loads(ROW) | {"reward": reward, "staleness": staleness})
        for reward, staleness in zip(rewards, stalenesses, strict=True)
    ]
    assert summarize_steps(steps) == {
        "staleness": 0.75,
        "clip_fraction": None,
        "run": 0.0,
        "completion_length": 21.0,
        "reward_first": 0.0,
        "reward_last": 0.75,
    }
    assert summarize_steps(steps[3:4])["reward_first"] == 0.5
    assert summarize_steps([])["reward_last"] is None


def test_unparsable_share_is_of_graded_completions():
    """One of the four completions was not graded."""
    evaluation = Evaluation(
        **RUN,
        problems=1,
        samples=4,
        reasons={"unparsable": 1, "passed": 1, "wrong_answer": 1, "infrastructure": 1},
        scores=[ProblemScore(id="a", samples=3, correct=1)],
    )
    assert evaluation.unparsable == 1 / 3
    assert Evaluation(**RUN, status="unavailable").unparsable is None


def test_inconsistent_score_is_described_by_its_numbers():
    message = "scores: a has 4 sampled completions, of which 3 are graded, of which 4 are correct"
    with pytest.raises(ValueError, match=message):
        Evaluation(
            **RUN,
            problems=1,
            samples=4,
            reasons={"passed": 4},
            scores=[ProblemScore(id="a", samples=3, correct=4)],
        )
