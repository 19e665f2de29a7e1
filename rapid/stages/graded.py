"""Completions that are sampled from a model and graded, for distillation and evaluation."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rapid.benchmarks.base import Problem
from rapid.benchmarks.prompts import render
from rapid.grading.grader import Grader
from rapid.grading.verdicts import INFRASTRUCTURE, Verdict


def sample_and_grade(
    model: Path,
    benchmark: str,
    problems: Sequence[Problem],
    grader: Grader,
    *,
    sampler: str,
    chat: bool,
    **sampling,
) -> list[tuple[Problem, Any, Verdict]]:
    """Sample a completion for each of these problems, and return each with its verdict.

    Args:
        sampling: further arguments of `rapid.sampling.sample`.
    """
    from rapid.sampling import sample

    prompts = [render(benchmark, problem, chat) for problem in problems]
    samples = sample(sampler, model, prompts, chat=chat, **sampling)
    pairs = list(zip(problems, samples, strict=True))
    return [
        (problem, completion, grader.grade(problem, completion.text))
        for problem, completion in tqdm(pairs, desc="grading", unit="completion")
    ]


def report_ungraded(reasons: dict[str, int]) -> None:
    """Print how many completions were not graded, if there are any."""
    if count := reasons.get(INFRASTRUCTURE):
        print(f"{count} of {sum(reasons.values())} not graded: the grader died", file=sys.stderr)
