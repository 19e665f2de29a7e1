"""Evaluation: sampling settings, graded completions, and the values computed from them."""

import json
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import pytest

from rapid.artifacts.evaluations import CurvePoint, pass_at_k
from rapid.artifacts.files import read_jsonl, write_json, write_jsonl
from rapid.artifacts.runs import SNAPSHOTS, RunSummary, Runtime, StepRecord
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.config.specs import EvaluateSpec, Run
from rapid.grading import verdicts
from rapid.sampling import Sample
from rapid.stages.evaluate import CURVE, evaluate


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("correct", [0, 1, 3, 6])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_completion(correct, k):
    completions = [True] * correct + [False] * (6 - correct)
    subsets = list(combinations(completions, k))
    assert pass_at_k(6, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


SPEC = EvaluateSpec(
    run=Run(benchmark="math", model="toy", algorithm="rapid-H2", seed=7),
    compute={"device": "cpu", "threads": 2, "processes": 1, "sampler": "transformers"},
    max_completion_length=9,
    timeout=2.0,
    chat=False,
    pass_at=[1, 2, 3, 4],
    snapshots=1,
    evaluation={"samples": 3, "temperature": 0.6, "top_p": 0.9},
)
# Verdicts of the completions of each problem, as the stubs give them; the last is not graded.
OUTCOMES = {
    "a": [verdicts.PASSED, verdicts.WRONG_ANSWER, verdicts.WRONG_ANSWER],
    "b": [verdicts.WRONG_ANSWER] * 3,
    "c": [verdicts.PASSED, verdicts.PASSED, verdicts.INFRASTRUCTURE],
}
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 8]  # in tokens, in the order of sampling


@pytest.fixture
def calls(monkeypatch) -> list[dict]:
    """Calls of a stub sampler; a stub grader gives the verdict that a completion names."""
    calls = []

    def sample(kind, model, prompts, **settings):
        calls.append(settings | {"kind": kind, "model": model.name, "prompts": prompts})
        samples = len(prompts) // len(OUTCOMES)
        order = [reason for reasons in OUTCOMES.values() for reason in reasons[:samples]]
        assert len(prompts) == len(order)
        lengths = LENGTHS[: len(order)]
        return [Sample(text=reason, tokens=n) for reason, n in zip(order, lengths, strict=True)]

    class Graders:
        size = 2

        def grade(self, problem, completion):
            return verdicts.build_verdict(completion)

        def describe_isolation(self):
            return "isolated"

    @contextmanager
    def open_graders(timeout, workers, permissions):
        assert (timeout, workers) == (SPEC.timeout, SPEC.compute.threads)
        yield Graders()

    monkeypatch.setattr("rapid.sampling.sample", sample)
    monkeypatch.setattr(BENCHMARKS["math"], "build_grader", open_graders)
    return calls


@pytest.fixture
def run(tmp_path):
    """A folder with a run that has a snapshot after step 4, and a file of problems."""
    (tmp_path / SNAPSHOTS / "step4").mkdir(parents=True)
    (tmp_path / "model").mkdir()
    summary = RunSummary(**SPEC.run.model_dump(), runtime=Runtime(total=9, other=9))
    write_json(tmp_path / "summary.json", summary)
    steps = [StepRecord(step=n, seconds=n / 2, loss=0, gradient_norm=0) for n in range(1, 9)]
    write_jsonl(tmp_path / "steps.jsonl", steps)
    problems = [MathProblem(unique_id=name, problem=f"{name}?", answer="1") for name in OUTCOMES]
    write_jsonl(tmp_path / "test.jsonl", problems)
    return tmp_path


def test_values_are_those_of_the_sampled_and_graded_completions(calls, run):
    result = evaluate(SPEC, run / "model", run / "test.jsonl", run / "evaluation")
    graded = [(score.id, score.samples, score.correct) for score in result.scores]
    assert graded == [("a", 3, 1), ("b", 3, 0), ("c", 2, 2)]
    # Only problems with at least k graded completions count; none has 4.
    expected = {1: (1 / 3 + 0 + 1) / 3, 2: (2 / 3 + 0 + 1) / 3, 3: (1 + 0) / 2}
    assert result.pass_at == pytest.approx(expected)
    assert result.completion_length == sum(LENGTHS) / 9
    assert result.reasons == {"passed": 3, "wrong_answer": 5, "infrastructure": 1}
    assert (result.status, result.note, result.problems, result.samples) == ("ok", "", 3, 3)
    assert (result.temperature, result.top_p, result.max_completion_length) == (0.6, 0.9, 9)
    assert (result.algorithm, result.seed) == ("rapid-H2", 7)
    document = json.loads((run / "evaluation/evaluation.json").read_text())
    assert document == result.model_dump(mode="json")
    manifest = json.loads((run / "evaluation/manifest.json").read_text())
    assert manifest["isolation"] == "isolated"
    inputs = {Path(path).name for path in manifest["inputs"]}
    assert inputs == {"summary.json", "steps.jsonl", "test.jsonl"}


def test_completions_are_sampled_with_the_settings_of_the_spec(calls, run):
    evaluate(SPEC, run / "model", run / "test.jsonl", run / "evaluation")
    assert [call["model"] for call in calls] == ["model", "step4"]
    for call in calls:
        assert (call["kind"], call["precision"]) == ("transformers", "float32")
        assert (call["temperature"], call["top_p"], call["max_tokens"]) == (0.6, 0.9, 9)
        assert (call["seed"], call["chat"]) == (7, False)
        order = [prompt.split("?")[0][-1] for prompt in call["prompts"]]
        assert order == [*"aaabbbccc"]


def test_snapshot_has_a_point_of_the_curve(calls, run):
    result = evaluate(SPEC, run / "model", run / "test.jsonl", run / "evaluation")
    (point,) = read_jsonl(run / "evaluation" / CURVE, CurvePoint)
    assert (point.step, point.seconds, point.pass_at) == (4, 2.0, result.pass_at)
    without_snapshots = SPEC.model_copy(update={"snapshots": 0})
    evaluate(without_snapshots, run / "model", run / "test.jsonl", run / "evaluation")
    assert not (run / "evaluation" / CURVE).exists()  # an earlier one is deleted


def test_snapshots_can_have_fewer_completions_than_the_final_model(calls, run):
    fewer = SPEC.evaluation.model_copy(update={"snapshot_samples": 2})
    spec = SPEC.model_copy(update={"evaluation": fewer})
    result = evaluate(spec, run / "model", run / "test.jsonl", run / "evaluation")
    assert [len(call["prompts"]) for call in calls] == [9, 6]
    assert [*result.pass_at] == [1, 2, 3]
    (point,) = read_jsonl(run / "evaluation" / CURVE, CurvePoint)
    assert point.pass_at == pytest.approx({1: (1 / 2 + 0 + 1) / 3, 2: (1 + 0 + 1) / 3})


def test_diversity_is_measured_on_request(calls, run, monkeypatch):
    """The texts are the reasons: problems a and c have two different ones, b has one."""
    measured = []

    def measure(model, prompts, samples, **settings):
        measured.append((model.name, len(prompts), len(samples), settings))
        return 1.25

    monkeypatch.setattr("rapid.stages.evaluate.measure_entropy", measure)
    without = evaluate(SPEC, run / "model", run / "test.jsonl", run / "evaluation")
    assert not {"entropy", "distinct", "distinct_correct"} & without.model_dump().keys()
    assert "diversity" not in SPEC.model_dump()["evaluation"]
    assert measured == []
    spec = SPEC.model_copy(
        update={"evaluation": SPEC.evaluation.model_copy(update={"diversity": True})}
    )
    result = evaluate(spec, run / "model", run / "test.jsonl", run / "evaluation")
    # The completions of the final model, and not those of the snapshot.
    settings = {"temperature": 0.6, "chat": False, "precision": "float32"}
    assert measured == [("model", 9, 9, settings)]
    assert result.entropy == 1.25
    assert result.distinct == pytest.approx(5 / 9)
    assert result.distinct_correct == pytest.approx(2 / 3)
    document = json.loads((run / "evaluation/evaluation.json").read_text())
    assert document["distinct"] == result.distinct
    assert result.pass_at == without.pass_at


@pytest.mark.parametrize("shown", [0, 2, 9])
def test_first_completions_of_the_first_problems_are_kept(calls, run, shown):
    settings = SPEC.evaluation.model_copy(update={"shown": shown})
    spec = SPEC.model_copy(update={"evaluation": settings})
    evaluate(spec, run / "model", run / "test.jsonl", run / "evaluation")
    document = json.loads((run / "evaluation/evaluation.json").read_text())
    kept = [(row["id"], row["problem"], row["completion"]) for row in document.get("examples", [])]
    first = [("a", "a?", "passed"), ("b", "b?", "wrong_answer"), ("c", "c?", "passed")]
    assert kept == first[:shown] and ("examples" in document) == (shown > 0)


def test_untrained_run_is_not_evaluated(calls, run):
    summary = RunSummary(**SPEC.run.model_dump(), status="unavailable", note="no Lean")
    write_json(run / "summary.json", summary)
    result = evaluate(SPEC, run / "model", run / "test.jsonl", run / "evaluation")
    assert (result.status, result.note, result.pass_at) == ("unavailable", "no Lean", {})
    assert calls == []
