"""Completions of several models for the same problems, which report.html shows.

The problems are the first test problems, and each completion is the first that was sampled, so that
none is selected by its quality. Completions are untrusted text: report.html escapes them.
"""

from dataclasses import dataclass

from rapid.algorithms import PG
from rapid.artifacts.evaluations import PASSED
from rapid.config.specs import BASE
from rapid.grading.verdicts import REASONS
from reports import labels
from reports.outcomes import FieldOutcomes


@dataclass(frozen=True)
class Answer:
    """A model's completion for a problem, with the reason of its verdict."""

    model: str
    completion: str
    reason: str

    @property
    def is_correct(self) -> bool:
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
    """Return the problems whose completions are recorded, with the answers of several models.

    The models are the one before training, the one that RL starts from, and those trained by PG and
    by the algorithm that the first claim is about, each with its lowest seed.

    Args:
        outcomes: the results of the algorithms that compete on one benchmark.
    """
    field = outcomes.field
    run_names = {name: name for name in (BASE, outcomes.data.params.training.start)}
    for name in (PG.name, *(claim.ours for claim in field.claims[:1])):
        run_names[name] = field.run_name(name)
    by_problem: dict[str, Example] = {}
    for name, run_name in run_names.items():
        runs = outcomes.select_runs(run_name).sort_values("seed")
        for _, run in runs[runs.examples.map(len) > 0].head(1).iterrows():
            for record in run.examples:
                example = by_problem.setdefault(record.id, Example(record.problem, []))
                model = f"{labels.algorithm(name)}, seed {run.seed}"
                answer = Answer(model, record.completion, record.reason)
                example.answers.append(answer)
    return list(by_problem.values())
