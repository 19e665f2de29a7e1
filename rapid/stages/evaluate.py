"""The evaluation stage: sample completions of the test problems, grade them, estimate pass@k."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rapid.artifacts.evaluations import (
    CURVE,
    CurvePoint,
    Evaluation,
    ExampleCompletion,
    ProblemScore,
    mean_pass_at_k,
)
from rapid.artifacts.files import read_jsonl, write_json, write_jsonl
from rapid.artifacts.manifests import record_job, verify_inputs
from rapid.artifacts.runs import SNAPSHOTS, StepRecord, explain_untrained
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.prompts import render_prompt
from rapid.config.specs import EvaluateSpec
from rapid.grading.pool import GraderPool
from rapid.grading.verdicts import Verdict, report_ungraded
from rapid.sampling import Sample, measure_entropy, sample_and_grade

GradedSample = tuple[Problem, Sample, Verdict]


def evaluate(spec: EvaluateSpec, model: Path, test: Path, folder: Path) -> Evaluation:
    """Evaluate a model on a file of problems; write evaluation.json and manifest.json.

    If the run saved snapshots (models during training), they are evaluated too, and curve.jsonl has
    a `CurvePoint` for each. If the benchmark's grader is not available on this machine, or the run
    trained nothing, evaluation.json has the status `unavailable` and the reason instead of results.

    Args:
        model: the model's folder. The run's other files are in its parent folder.
        test: the test problems, test.jsonl.
        folder: the folder to write.
    """
    # Files that only a run has. Beside other models they are missing, which `verify_inputs` allows.
    run_files = ["summary.json", *(["steps.jsonl", SNAPSHOTS] if spec.snapshots else [])]
    inputs = verify_inputs(model, test, *map(model.with_name, run_files))
    with record_job("evaluate", spec, folder, inputs, ["evaluation.json", CURVE]) as notes:
        reason = BENCHMARKS[spec.run.benchmark].explain_unavailable() or explain_untrained(model)
        curve, isolation = [], ""
        if reason:
            result = {"status": "unavailable", "note": reason}
        else:
            result, curve, isolation = _evaluate_with_snapshots(spec, model, test)
        evaluation = Evaluation(
            **spec.run.model_dump(),
            **spec.evaluation.model_dump(),
            max_completion_length=spec.max_completion_length,
            **result,
        )
        write_json(folder / "evaluation.json", evaluation)
        if curve:
            write_jsonl(folder / CURVE, curve)
        notes |= {"isolation": isolation, "unavailable": evaluation.note}
    figures = [f"pass@{k} {value:.1%}" for k, value in evaluation.pass_at.items()]
    print(f"{folder}: {', '.join(figures) or evaluation.note}", file=sys.stderr)
    report_ungraded(evaluation.reasons)
    return evaluation


def _evaluate_with_snapshots(
    spec: EvaluateSpec, model: Path, test: Path
) -> tuple[dict[str, Any], list[CurvePoint], str]:
    """Return fields of `Evaluation`, the points of the curve, and a description of the sandbox."""
    benchmark, curve = BENCHMARKS[spec.run.benchmark], []
    problems = list(read_jsonl(test, benchmark.record))
    with benchmark.build_grader(spec.timeout, spec.compute.threads, spec.grading) as grader:
        graded = _draw_graded_samples(spec, model, problems, spec.evaluation.samples, grader)
        snapshot_samples = spec.evaluation.effective_snapshot_samples
        for step, snapshot in _list_snapshots(spec, model):
            graded_of_snapshot = _draw_graded_samples(
                spec, snapshot, problems, snapshot_samples, grader
            )
            pass_at = _compute_pass_at(spec, _count_correct(graded_of_snapshot))
            curve.append(CurvePoint(step=step.step, seconds=step.seconds, pass_at=pass_at))
        isolation = grader.describe_isolation()
    scores = _count_correct(graded)
    result = {
        "pass_at": _compute_pass_at(spec, scores),
        "problems": len(problems),
        "completion_length": sum(sample.tokens for _, sample, _ in graded) / len(graded),
        "reasons": dict(Counter(verdict.reason for *_, verdict in graded)),
        "scores": scores,
        # The first completion of each of the first problems.
        "examples": [
            ExampleCompletion(
                id=problem.id,
                problem=problem.content,
                completion=sample.text,
                reason=verdict.reason,
            )
            for problem, sample, verdict in graded[:: spec.evaluation.samples]
        ][: spec.evaluation.shown],
    }
    if spec.evaluation.diversity:
        result |= _measure_diversity(spec, model, graded)
    return result, curve, isolation


def _list_snapshots(spec: EvaluateSpec, model: Path) -> list[tuple[StepRecord, Path]]:
    """Return the folder of each snapshot that a run saved, with the record of its step."""
    if not spec.snapshots:
        return []
    steps = read_jsonl(model.with_name("steps.jsonl"), StepRecord)
    folders = [(step, model.with_name(SNAPSHOTS) / f"step{step.step}") for step in steps]
    return [(step, folder) for step, folder in folders if folder.is_dir()]


def _draw_graded_samples(
    spec: EvaluateSpec, model: Path, problems: list[Problem], samples: int, grader: GraderPool
) -> list[GradedSample]:
    """Sample completions of each problem from a model, and grade them."""
    settings = spec.evaluation
    return sample_and_grade(
        model,
        spec.run.benchmark,
        [problem for problem in problems for _ in range(samples)],
        grader,
        sampler=spec.compute.sampler,
        max_tokens=spec.max_completion_length,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=spec.run.seed,
        chat=spec.chat,
        precision=settings.precision,
    )


def _count_correct(graded: list[GradedSample]) -> list[ProblemScore]:
    """Return the score of each problem, in the order of the problems."""
    samples, correct = Counter(), Counter()
    for problem, _, verdict in graded:
        # A completion without a reward was not graded, because its grader crashed.
        samples[problem.id] += verdict.reward is not None
        correct[problem.id] += verdict.reward == 1
    return [ProblemScore(id=id, samples=samples[id], correct=correct[id]) for id in samples]


def _measure_diversity(
    spec: EvaluateSpec, model: Path, graded: list[GradedSample]
) -> dict[str, float]:
    """Return the values of `DiversityMetrics` by name.

    Texts that differ only in white space at their ends count as equal.
    """
    settings, texts, solutions = spec.evaluation, set(), set()
    for problem, sample, verdict in graded:
        text = problem.id, sample.text.strip()
        texts.add(text)
        if verdict.reward == 1:
            solutions.add(text)
    entropy = measure_entropy(
        model,
        [render_prompt(spec.run.benchmark, problem, spec.chat) for problem, *_ in graded],
        [sample for _, sample, _ in graded],
        temperature=settings.temperature,
        chat=spec.chat,
        precision=settings.precision,
    )
    problems = len(graded) / settings.samples
    return {
        "entropy": entropy,
        "distinct": len(texts) / len(graded),
        "distinct_correct": len(solutions) / problems,
    }


def _compute_pass_at(spec: EvaluateSpec, scores: list[ProblemScore]) -> dict[int, float]:
    """Return the mean pass@k by k; a k is left out if no problem has k graded completions."""
    means = {k: mean_pass_at_k(scores, k) for k in spec.pass_at}
    return {k: mean for k, mean in means.items() if mean is not None}
