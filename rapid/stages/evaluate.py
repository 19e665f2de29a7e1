"""The evaluation stage: sample completions of the test problems, grade them, estimate pass@k."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rapid.artifacts.evaluations import (
    CURVE,
    CurvePoint,
    Evaluation,
    ProblemScore,
    mean_pass_at_k,
)
from rapid.artifacts.files import read_jsonl, write_json, write_jsonl
from rapid.artifacts.manifests import record_job, verify_inputs
from rapid.artifacts.runs import SNAPSHOTS, StepRecord, explain_untrained
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.config.specs import EvaluateSpec
from rapid.grading.grader import Grader
from rapid.grading.verdicts import report_ungraded
from rapid.sampling import sample_and_grade


def evaluate(spec: EvaluateSpec, model: Path, test: Path, folder: Path) -> Evaluation:
    """Evaluate a model on a file of problems; write evaluation.json and manifest.json.

    If the run saved snapshots (models during training), they are evaluated too, and curve.jsonl has
    a `CurvePoint` for each. If the benchmark's grader is not available on this machine, or the run
    trained nothing, evaluation.json has the status `unavailable` and the reason, and no results.

    Args:
        model: the model's folder. The run's other files are in its parent folder.
        test: the test problems, test.jsonl.
        folder: the folder to write.
    """
    run_files = ["summary.json", *(["steps.jsonl", SNAPSHOTS] if spec.snapshots else [])]
    inputs = verify_inputs(model, test, *map(model.with_name, run_files))
    with record_job("evaluate", spec, folder, inputs, ["evaluation.json", CURVE]) as notes:
        missing = BENCHMARKS[spec.run.benchmark].unavailable() or explain_untrained(model)
        curve, walls = [], ""
        if missing:
            result = {"status": "unavailable", "note": missing}
        else:
            result, curve, walls = _sample_and_grade(spec, model, test)
        evaluation = Evaluation(
            **spec.run.model_dump(),
            **spec.evaluation.model_dump(),
            max_completion_length=spec.max_completion_length,
            **result,
        )
        write_json(folder / "evaluation.json", evaluation)
        if curve:
            write_jsonl(folder / CURVE, curve)
        notes |= {"walls": walls, "unavailable": evaluation.note}
    figures = [f"pass@{k} {value:.1%}" for k, value in evaluation.pass_at.items()]
    print(f"{folder}: {', '.join(figures) or evaluation.note}", file=sys.stderr)
    report_ungraded(evaluation.reasons)
    return evaluation


def _sample_and_grade(
    spec: EvaluateSpec, model: Path, test: Path
) -> tuple[dict[str, Any], list[CurvePoint], str]:
    """Evaluate a model and the snapshots of its run.

    Returns:
        Fields of `Evaluation`, the points of the curve, and a description of the sandbox in force.
    """
    benchmark, curve = BENCHMARKS[spec.run.benchmark], []
    problems = list(read_jsonl(test, benchmark.record))
    with benchmark.grader(spec.timeout, policy=spec.grading) as grader:
        scores, length, reasons = _score(spec, model, problems, grader)
        for step, snapshot in _snapshots(spec, model):
            pass_at = _pass_at(spec, _score(spec, snapshot, problems, grader)[0])
            curve.append(CurvePoint(step=step.step, seconds=step.seconds, pass_at=pass_at))
        walls = grader.describe_isolation()
    result = {
        "pass_at": _pass_at(spec, scores),
        "problems": len(problems),
        "completion_length": length,
        "reasons": reasons,
        "scores": scores,
    }
    return result, curve, walls


def _snapshots(spec: EvaluateSpec, model: Path) -> list[tuple[StepRecord, Path]]:
    """Return the folders of the snapshots that a run saved, each with the record of its step."""
    if not spec.snapshots:
        return []
    steps = read_jsonl(model.with_name("steps.jsonl"), StepRecord)
    folders = [(step, model.with_name(SNAPSHOTS) / f"step{step.step}") for step in steps]
    return [(step, folder) for step, folder in folders if folder.is_dir()]


def _score(
    spec: EvaluateSpec, model: Path, problems: list[Problem], grader: Grader
) -> tuple[list[ProblemScore], float, dict[str, int]]:
    """Sample a model on the problems, and grade its completions.

    Returns:
        The scores, the mean length of completions in tokens, and the number of verdicts by reason.
    """
    settings = spec.evaluation
    graded = sample_and_grade(
        model,
        spec.run.benchmark,
        [problem for problem in problems for _ in range(settings.samples)],
        grader,
        sampler=spec.compute.sampler,
        max_tokens=spec.max_completion_length,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=spec.run.seed,
        chat=spec.chat,
        precision=settings.precision,
    )
    samples, correct = Counter(), Counter()
    for problem, _, verdict in graded:
        # A completion without a reward was not graded, because its grader died.
        samples[problem.id] += verdict.reward is not None
        correct[problem.id] += verdict.reward == 1
    scores = [
        ProblemScore(id=problem.id, samples=samples[problem.id], correct=correct[problem.id])
        for problem in problems
    ]
    length = sum(completion.tokens for _, completion, _ in graded) / len(graded)
    return scores, length, dict(Counter(verdict.reason for _, _, verdict in graded))


def _pass_at(spec: EvaluateSpec, scores: list[ProblemScore]) -> dict[int, float]:
    """Return the mean pass@k by k; a k is left out if no problem has k graded completions."""
    means = {k: mean_pass_at_k(scores, k) for k in spec.pass_at}
    return {k: mean for k, mean in means.items() if mean is not None}
