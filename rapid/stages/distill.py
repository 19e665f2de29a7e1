"""The distillation stage: a teacher's correct completions of the training problems."""

import sys
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.files import read_jsonl, write_jsonl
from rapid.artifacts.manifests import begin, verified, write_manifest
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.prompts import render
from rapid.config.specs import DistillSpec


def distill(spec: DistillSpec, teacher: Path, train: Path, folder: Path) -> None:
    """Write `folder`/samples.jsonl (`Demonstration` rows) and `folder`/manifest.json.

    Where the benchmark's grader cannot be had, no completion can be called correct: samples.jsonl
    is empty and the manifest says why.
    """
    inputs, samples = verified(teacher, train), folder / "samples.jsonl"
    begin(folder, samples.name)
    task = BENCHMARKS[spec.benchmark]
    missing = task.unavailable()
    kept, reasons, walls = [], Counter(), ""
    if not missing:
        kept, reasons, walls = _sample_and_grade(spec, task, teacher, train)
    write_jsonl(samples, kept)
    more = {
        "kept": len(kept),
        "problems": len({demonstration.id for demonstration in kept}),
        "reasons": dict(reasons),
        "unavailable": missing or "",
        "walls": walls,
    }
    write_manifest(folder, "distill", spec, inputs, [samples], **more)
    found = missing or f"{len(kept):,} of {sum(reasons.values()):,} completions correct"
    print(f"{folder}: {found}", file=sys.stderr)


def _sample_and_grade(spec: DistillSpec, task, teacher: Path, train: Path):
    from rapid.sampling import sample

    problems = [p for p in read_jsonl(train, task.record) for _ in range(spec.samples)]
    # First: where completions cannot be graded, none need be sampled.
    with task.grader(spec.timeout, policy=spec.grading) as grader:
        samples = sample(
            spec.compute.sampler,
            teacher,
            [render(task.name, problem, spec.chat) for problem in problems],
            max_tokens=spec.max_completion_length,
            temperature=spec.temperature,
            top_p=spec.top_p,
            seed=spec.data_seed,
            chat=spec.chat,
            precision=spec.precision,
            tensor_parallel=spec.tensor_parallel,
        )
        kept, reasons = [], Counter()
        pairs = zip(problems, samples, strict=True)
        for problem, drawn in tqdm(pairs, desc="grading", total=len(problems), unit="completion"):
            verdict = grader.grade(problem, drawn.text)
            reasons[verdict.reason] += 1
            if verdict.reward:
                prompt, message = (render(task.name, problem, chat) for chat in (False, True))
                given = {"id": problem.id, "prompt": prompt, "message": message}
                kept.append(Demonstration(**given, completion=drawn.text))
        walls = grader.walls()
    return kept, reasons, walls
