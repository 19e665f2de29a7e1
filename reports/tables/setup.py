"""How the runs were made, out of their manifests: the paper's Tables 5 to 7.

Nothing is typed here but names.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rapid.algorithms import ALGORITHMS, IMITATING
from rapid.algorithms.base import Algorithm
from rapid.algorithms.names import parse
from rapid.benchmarks.problem_source import DIGITS, ProblemSource
from rapid.config.specs import BASE
from rapid.text import listing, short
from reports.files import Manifest
from reports.measured import Measured
from reports.tables import notes
from reports.tables.table import (
    MISSING,
    NOT_APPLICABLE,
    Cell,
    Group,
    Row,
    Source,
    Table,
    stacked,
)

ABSENT = object()  # a null is a value
NO_MANIFEST = "no run whose manifest.json says this is there"
NOT_PREPARED = "no manifest.json of the prepared problems is there"
LONG = re.compile(r"\b[0-9a-f]{40,64}\b")  # a commit or a digest
SHOWN = 12  # runs that a cell names; more would be a long list of the same


@dataclass(frozen=True)
class Setting:
    """A row: what it is called, and where manifests have it.

    `stage` and `algorithm` pick the jobs; None is all RL algorithms.
    """

    name: str
    key: str
    stage: str = "train"
    algorithm: Algorithm | None = None

    def of(self, manifest: Manifest) -> Any:
        """Return the value in a manifest, or ABSENT where it is none of these jobs."""
        name = manifest.value("run.algorithm") or ""
        picked = self.algorithm.named(name) if self.algorithm else not IMITATING.named(name)
        if manifest.stage != self.stage or not picked:
            return ABSENT
        return manifest.value(self.key, ABSENT)


TEACHER = [
    Setting("Teacher model", "teacher", stage="distill"),
    Setting("Longest generation (tokens)", "max_completion_length", stage="distill"),
    Setting("Temperature", "temperature", stage="distill"),
    Setting("Top-p", "top_p", stage="distill"),
    Setting("Generations a prompt", "samples", stage="distill"),
]
MADE = [
    Setting("Made demonstrations", "demonstrations", stage="distill"),
    Setting("Share with a mistake", "error_rate", stage="distill"),
]
STUDENT = [
    Setting("Learning rate", "objective.learning_rate", algorithm=IMITATING),
    Setting("Epochs", "objective.epochs", algorithm=IMITATING),
    Setting("Demonstrations a step", "objective.batch", algorithm=IMITATING),
    Setting("Threads", "compute.threads", algorithm=IMITATING),
]
RL = [
    Setting("Learning rate", "training.learning_rate"),
    Setting("Epochs", "training.epochs"),
    Setting("Generations a prompt", "training.group_size"),
    Setting("Completions an optimizer step", "n_step"),
    Setting("Completions a pass", "training.micro_batch"),
    Setting("Longest completion (tokens)", "max_completion_length"),
    Setting("Temperature of sampling", "training.temperature"),
    Setting("Seconds a verdict may take", "timeout"),
    Setting("Threads", "compute.threads"),
]


PROBLEMS: dict[str, Callable[[ProblemSource], str]] = {
    "Problems": lambda source: source.kind,
    "Source": lambda source: source.name,
    "Revision of the source": lambda source: source.revision,
    "SHA-256 of the source": lambda source: source.digest,
    "Training problems (SHA-256)": lambda source: _numbered(source, "train"),
    "Test problems (SHA-256)": lambda source: _numbered(source, "test"),
}


def imitation(measured: Measured) -> Table:
    """Return Table 5: how SFT was made."""
    caption = "Configurations and hyperparameters for SFT."
    source = MADE if measured.params.imitation.demonstrations else TEACHER
    return _table(measured, [source, STUDENT], 5, "tab:sft-para", caption)


def rl(measured: Measured) -> Table:
    """Return Table 6: the parameters of RL, and those that each algorithm has for itself."""
    params = measured.params
    named = (name for each in params.benchmarks for name in params.algorithms(each))
    asked = {parse(name).algorithm for name in named}
    own = [
        Setting(f"{one.label}: {title}", key, algorithm=one)
        for one in ALGORITHMS.values()
        for title, key in one.reported.items()
        if one in asked
    ]
    start = [] if params.training.start == BASE else [Setting("Starts from", "training.start")]
    caption = "Configurations and hyperparameters for RL algorithms."
    problems = [_problem_rows(measured)]
    return _table(measured, [[*start, *RL], own], 6, "tab:rl-para", caption, problems)


def versions(measured: Measured) -> Table:
    """Return Table 7: package versions, with the machine and the code."""
    manifests = list(measured.manifests.values())
    packages = list(dict.fromkeys(name for manifest in manifests for name in manifest.versions))
    stages = {"distill": "distillations", "train": "training runs", "evaluate": "evaluations"}
    counts = [
        f"{sum(manifest.stage == stage for manifest in manifests)} {name}"
        for stage, name in stages.items()
    ]
    return Table(
        number=7,
        label="tab:package",
        caption="Package versions.",
        stub="Package",
        groups=[Group("", ["Version"])],
        rows=[
            Row(
                name,
                [[_cell(measured.manifests, lambda one, of=name: one.versions.get(of, ABSENT))]],
            )
            for name in packages
        ],
        notes=[
            f"From the manifests of {listing(counts)}.",
            *notes.machines([manifest.hardware for manifest in manifests]),
            *notes.commits([manifest.commit for manifest in manifests]),
            *notes.unwalled([manifest.waived for manifest in manifests]),
        ],
        problems=[*measured.problems.values()],
    )


def _table(
    measured: Measured,
    parts: list[list[Setting]],
    number: int,
    label: str,
    caption: str,
    more: Sequence[list[Row]] = (),
) -> Table:
    """Return a table with a column for each benchmark, and a part for each list of settings.

    Args:
        more: parts that come first.
    """
    by_benchmark = [
        {
            path: one
            for path, one in measured.manifests.items()
            if name in (one.value("run.benchmark"), one.value("benchmark"))
        }
        for name in measured.params.benchmarks
    ]
    rows = [
        [Row(setting.name, [[_cell(of, setting.of) for of in by_benchmark]]) for setting in part]
        for part in parts
    ]
    return Table(
        number=number,
        label=label,
        caption=caption,
        stub="Hyperparameter",
        groups=[Group("", [source.label for source in measured.problems.values()])],
        rows=stacked([*more, *rows]),
        notes=["From the runs' manifests; several values where runs differ."],
        problems=[*measured.problems.values()],
    )


def _problem_rows(measured: Measured) -> list[Row]:
    """Return what the problems are: a row for each thing to know of a source."""
    return [
        Row(title, [[_problem_cell(source, value) for source in measured.problems.values()]])
        for title, value in PROBLEMS.items()
    ]


def _problem_cell(source: ProblemSource, value: Callable[[ProblemSource], str]) -> Cell:
    """Return a cell of a source; of a digest or commit the first digits, and all in its detail."""
    if source.prepared is None:
        return Cell(MISSING, reason=NOT_PREPARED)
    text = value(source)
    printed = LONG.sub(lambda digest: short(digest[0], DIGITS), text)
    return Cell(printed or NOT_APPLICABLE, detail=f"{text}." if printed != text else "")


def _numbered(source: ProblemSource, part: str) -> str:
    """Return how many problems a part has, and the SHA-256 of their file."""
    known = source.part(part)
    return f"{known[0]:,} ({known[1]})" if known else ""


def _cell(manifests: dict[str, Manifest], value: Callable[[Manifest], Any]) -> Cell:
    """Return the value that the manifests agree on, or all that they have."""
    given = {path: value(one) for path, one in manifests.items()}
    values = {path: one for path, one in given.items() if one is not ABSENT}
    if not values:
        return Cell(MISSING, reason=NO_MANIFEST)
    # Lists and objects too, each once, in the order met.
    found = list({json.dumps(one): one for one in values.values()}.values())
    if all(isinstance(one, int | float) for one in found):
        found.sort()
    sources = [
        Source(path.removesuffix("/manifest.json"), _text(one), path)
        for path, one in values.items()
    ]
    more = f", of which {SHOWN} are named" if len(sources) > SHOWN else ""
    return Cell(
        listing([_text(one) for one in found], "or"),
        detail=f"In {len(sources)} manifests{more}.",
        sources=tuple(sources[:SHOWN]),
    )


def _text(value: Any) -> str:
    """Return a value as a person would write it: 0.0001, 16, advantage, none."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
