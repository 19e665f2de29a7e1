"""Completions to look at: the same problems, answered by several models. report.html shows them.

The problems are the first test problems, and each completion is the first that was sampled, so that
none is selected by its quality. Completions are untrusted text: report.html escapes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rapid.algorithms import PG
from rapid.artifacts.evaluations import PASSED
from rapid.config.specs import BASE
from rapid.grading.verdicts import REASONS
from reports import labels
from reports.measured import Measured
from reports.outcomes import FieldOutcomes


@dataclass(frozen=True)
class Answer:
    """A model's completion for a problem.

    Args:
        model: the label of the algorithm, with the seed.
        reason: of the verdict.
    """

    model: str
    completion: str
    reason: str

    @property
    def is_right(self) -> bool:
        return self.reason == PASSED

    @property
    def meaning(self) -> str:
        """The meaning of the reason, in words."""
        return REASONS[self.reason].meaning if self.reason in REASONS else ""


@dataclass(frozen=True)
class Example:
    """A test problem with the answers of several models."""

    problem: str
    answers: list[Answer]


def collect_arena_examples(outcomes: FieldOutcomes) -> list[Example]:
    """Return problems with answers of the base, the start, PG, and RAPID as in the first claim."""
    measured, field = outcomes.measured, outcomes.field
    untrained = dict.fromkeys([BASE, measured.params.training.start])
    ours = [PG.name, *(claim.ours for claim in field.claims[:1])]
    names = {name: name for name in untrained} | {name: field.run_name(name) for name in ours}
    by_label = {labels.algorithm(name): run_name for name, run_name in names.items()}
    return collect_examples(measured, outcomes.benchmark, by_label)


def collect_examples(
    measured: Measured, benchmark: str, algorithms: Mapping[str, str]
) -> list[Example]:
    """Return the problems that the evaluations show, each with the answers of these algorithms.

    Of each algorithm, the run with the lowest seed answers.

    Args:
        algorithms: names of the runs' algorithms by label.
    """
    by_problem: dict[str, Example] = {}
    seeds = sorted(set(measured.frame.seed))
    for label, name in algorithms.items():
        runs = measured.contest(benchmark, [name], seeds).runs.sort_values("seed")
        for _, run in runs[runs.examples.map(len) > 0].head(1).iterrows():
            for shown in run.examples:
                example = by_problem.setdefault(shown.id, Example(shown.problem, []))
                answer = Answer(f"{label}, seed {run.seed}", shown.completion, shown.reason)
                example.answers.append(answer)
    return list(by_problem.values())
