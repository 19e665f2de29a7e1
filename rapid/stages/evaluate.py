"""The evaluation stage: sample completions of the test problems, grade them, estimate pass@k."""

from collections import Counter
from pathlib import Path

from tqdm import tqdm

from rapid.artifacts.evaluations import (
    CURVE,
    CurvePoint,
    Evaluation,
    ProblemScore,
    mean_pass_at_k,
)
from rapid.artifacts.files import read_jsonl, write_json, write_jsonl
from rapid.artifacts.manifests import begin, verified, write_manifest
from rapid.artifacts.runs import SNAPSHOTS, StepRecord, not_trained
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.prompts import render
from rapid.config.specs import EvaluateSpec
from rapid.grading.grader import Grader


def evaluate(spec: EvaluateSpec, model: Path, test: Path, folder: Path) -> Evaluation:
    """Evaluate a model on a file of problems: evaluation.json (`Evaluation`) and manifest.json.

    Of a run that kept models on the way, these are evaluated too: curve.jsonl (`CurvePoint`).
    Where the benchmark's grader cannot be had on this machine, or the run was not trained, the
    evaluation says so and why; no figure is made up for it.

    Args:
        model: the model's folder; a run's has the run's other files beside it.
        test: problems, test.jsonl.
        folder: where the files go.
    """
    task = BENCHMARKS[spec.run.benchmark]
    header = {
        **spec.run.model_dump(),
        **spec.evaluation.model_dump(),
        "max_completion_length": spec.max_completion_length,
    }
    beside = ("summary.json", *(("steps.jsonl", SNAPSHOTS) if spec.snapshots else ()))
    inputs = verified(model, test, *map(model.with_name, beside))
    begin(folder, "evaluation.json", CURVE)
    missing, curve, walls = task.unavailable() or not_trained(model), [], ""
    if missing:
        found = {"status": "unavailable", "note": missing}
    else:
        problems = list(read_jsonl(test, task.record))
        with task.grader(spec.timeout, policy=spec.grading) as grader:
            scores, length, reasons = _scores(spec, model, problems, grader)
            for step, kept in _snapshots(spec, model):
                pass_at = _pass_at(spec, _scores(spec, kept, problems, grader)[0])
                curve.append(CurvePoint(step=step.step, seconds=step.seconds, pass_at=pass_at))
            walls = grader.walls()
        found = {
            "pass_at": _pass_at(spec, scores),
            "problems": len(problems),
            "completion_length": length,
            "reasons": reasons,
            "scores": scores,
        }
    evaluation = Evaluation(**header, **found)
    written = [folder / "evaluation.json", *([folder / CURVE] if curve else [])]
    write_json(written[0], evaluation)
    if curve:
        write_jsonl(written[1], curve)
    notes = {"walls": walls, "unavailable": evaluation.note}
    write_manifest(folder, "evaluate", spec, inputs, written, **notes)
    return evaluation


def _snapshots(spec: EvaluateSpec, model: Path) -> list[tuple[StepRecord, Path]]:
    """Return the models that a run kept on the way, each with the record of its step."""
    if not spec.snapshots:
        return []
    steps = read_jsonl(model.with_name("steps.jsonl"), StepRecord)
    kept = [(step, model.with_name(SNAPSHOTS) / f"step{step.step}") for step in steps]
    return [(step, folder) for step, folder in kept if folder.is_dir()]


def _scores(
    spec: EvaluateSpec, model: Path, problems: list[Problem], grader: Grader
) -> tuple[list[ProblemScore], float, dict[str, int]]:
    """Return a model's scores, the mean tokens of its completions, and verdicts by reason."""
    from rapid.sampling import sample

    settings = spec.evaluation
    owners = [problem for problem in problems for _ in range(settings.samples)]
    samples = sample(
        spec.compute.sampler,
        model,
        [render(spec.run.benchmark, problem, spec.chat) for problem in owners],
        max_tokens=spec.max_completion_length,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=spec.run.seed,
        chat=spec.chat,
        precision=settings.precision,
    )
    pairs = list(zip(owners, samples, strict=True))
    verdicts = [
        grader.grade(problem, drawn.text)
        for problem, drawn in tqdm(pairs, desc="grading", unit="completion")
    ]
    graded, correct = Counter(), Counter()
    for problem, verdict in zip(owners, verdicts, strict=True):
        graded[problem.id] += verdict.reward is not None
        correct[problem.id] += verdict.reward == 1
    scores = [
        ProblemScore(id=problem.id, samples=graded[problem.id], correct=correct[problem.id])
        for problem in problems
    ]
    length = sum(drawn.tokens for drawn in samples) / len(samples)
    return scores, length, dict(Counter(verdict.reason for verdict in verdicts))


def _pass_at(spec: EvaluateSpec, scores: list[ProblemScore]) -> dict[int, float]:
    """Return the mean pass@k for each k of which there is one."""
    means = {k: mean_pass_at_k(scores, k) for k in spec.pass_at}
    return {k: mean for k, mean in means.items() if mean is not None}
