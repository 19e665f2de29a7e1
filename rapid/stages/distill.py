"""The distillation stage: sample completions of the training problems from a teacher model.

The correct ones are kept, and SFT trains on them.
"""

import sys
from collections import Counter
from pathlib import Path

from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.files import read_jsonl, write_jsonl
from rapid.artifacts.manifests import record_job, verify_inputs
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.prompts import render_prompt_and_message
from rapid.config.specs import DistillSpec
from rapid.sampling import sample_and_grade


def distill(spec: DistillSpec, teacher: Path, train: Path, folder: Path) -> None:
    """Write `folder`/samples.jsonl (`Demonstration` rows) and `folder`/manifest.json.

    If the benchmark's grader is not available on this machine, samples.jsonl is empty, and the
    manifest says why under `unavailable`.

    Args:
        teacher: folder of the teacher model.
        train: the training problems, train.jsonl.
    """
    inputs, benchmark = verify_inputs(teacher, train), BENCHMARKS[spec.benchmark]
    with record_job("distill", spec, folder, inputs, ["samples.jsonl"]) as notes:
        missing = benchmark.explain_unavailable() or ""
        rows, reasons, isolation = [], Counter(), ""
        if not missing:
            problems = [p for p in read_jsonl(train, benchmark.record) for _ in range(spec.samples)]
            # The grader starts before sampling, so that its errors appear at once.
            graders = spec.compute.threads
            with benchmark.build_grader(spec.timeout, graders, spec.grading) as grader:
                graded = sample_and_grade(
                    teacher,
                    benchmark.name,
                    problems,
                    grader,
                    sampler=spec.compute.sampler,
                    max_tokens=spec.max_completion_length,
                    temperature=spec.temperature,
                    top_p=spec.top_p,
                    seed=spec.data_seed,
                    chat=spec.chat,
                    precision=spec.precision,
                    tensor_parallel=spec.tensor_parallel,
                )
                isolation = grader.describe_isolation()
            reasons.update(verdict.reason for _, _, verdict in graded)
            rows = [
                Demonstration(
                    id=problem.id,
                    **render_prompt_and_message(benchmark.name, problem),
                    completion=completion.text,
                )
                for problem, completion, verdict in graded
                if verdict.reward
            ]
        write_jsonl(folder / "samples.jsonl", rows)
        notes |= {
            "kept": len(rows),
            "problems": len({demonstration.id for demonstration in rows}),
            "reasons": dict(reasons),
            "unavailable": missing,
            "isolation": isolation,
        }
    outcome = missing or f"{len(rows):,} of {sum(reasons.values()):,} completions correct"
    print(f"{folder}: {outcome}", file=sys.stderr)
