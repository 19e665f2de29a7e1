"""How the runs were made, out of their manifests: the paper's Tables 5 to 7. Nothing is typed here
but names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rapid.algorithms import ALGORITHMS, IMITATING
from rapid.algorithms.base import Algorithm
from rapid.config.params import Params
from reports import notes
from reports.collect import waived
from reports.formats import listing
from reports.manifests import Manifest, distinct
from reports.table import MISSING, Cell, Group, Row, Source, Table

NO_MANIFEST = "no run whose manifest.json says this is there"
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
        if manifest.stage != self.stage or not self._picks(manifest.algorithm):
            return None
        return manifest.value(self.key)

    def _picks(self, algorithm: str) -> bool:
        if self.algorithm:
            return self.algorithm.named(algorithm)
        return not IMITATING.named(algorithm)


TEACHER = [
    Setting("Teacher model", "teacher", stage="distill"),
    Setting("Longest generation (tokens)", "max_completion_length", stage="distill"),
    Setting("Temperature", "temperature", stage="distill"),
    Setting("Top-p", "top_p", stage="distill"),
    Setting("Generations a prompt", "samples", stage="distill"),
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


def tables(params: Params, manifests: list[Manifest]) -> list[Table]:
    return [sft(params, manifests), rl(params, manifests), versions(manifests)]


def sft(params: Params, manifests: list[Manifest]) -> Table:
    """Table 5."""
    return _table(
        5, "tab:sft-para", "Configurations and hyperparameters for SFT.", params, manifests,
        [TEACHER, STUDENT],
    )  # fmt: skip


def rl(params: Params, manifests: list[Manifest]) -> Table:
    """Table 6."""
    caption = "Configurations and hyperparameters for RL algorithms."
    return _table(6, "tab:rl-para", caption, params, manifests, [RL, _of_algorithms()])


def _of_algorithms() -> list[Setting]:
    """The parameters that each RL algorithm has for itself."""
    return [
        Setting(f"{one.label}: {title}", key, algorithm=one)
        for one in ALGORITHMS.values()
        for title, key in one.reported.items()
        if not one.imitates
    ]


def versions(manifests: list[Manifest]) -> Table:
    """Table 7, with the machine and the code."""
    packages = list(dict.fromkeys(name for manifest in manifests for name in manifest.versions))
    rows = [
        Row(name, [[_cell(manifests, lambda manifest, name=name: manifest.versions.get(name))]])
        for name in packages
    ]
    by_stage = {
        "distillations": "distill",
        "training runs": "train",
        "evaluations": "evaluate",
    }
    counts = [
        f"{sum(manifest.stage == stage for manifest in manifests)} {name}"
        for name, stage in by_stage.items()
    ]
    return Table(
        number=7,
        label="tab:package",
        caption="Package versions.",
        stub="Package",
        groups=[Group("", ["Version"])],
        rows=rows,
        notes=[
            f"From the manifests of {listing(counts)}.",
            *notes.machines([manifest.hardware for manifest in manifests]),
            *notes.commits([manifest.commit for manifest in manifests]),
            *notes.unwalled([waived(manifest.spec) for manifest in manifests]),
        ],
    )


def _table(
    number: int,
    label: str,
    caption: str,
    params: Params,
    manifests: list[Manifest],
    parts: list[list[Setting]],
) -> Table:
    """A column for each benchmark, a part of the table for each list of settings."""
    rows = []
    for part in parts:
        for position, setting in enumerate(part):
            cells = [
                _cell([m for m in manifests if m.benchmark == benchmark], setting.of)
                for benchmark in params.benchmarks
            ]
            rows.append(Row(setting.name, [cells], section=position == 0 and bool(rows)))
    return Table(
        number=number,
        label=label,
        caption=caption,
        stub="Hyperparameter",
        groups=[Group("", [notes.benchmark(name) for name in params.benchmarks])],
        rows=rows,
        notes=["From the runs' manifests; several values where runs differ."],
    )


def _cell(manifests: list[Manifest], value: Callable[[Manifest], Any]) -> Cell:
    """The value that the manifests agree on, or all that they have."""
    having = [manifest for manifest in manifests if value(manifest) is not None]
    found = distinct(value(manifest) for manifest in having)
    if not found:
        return Cell(MISSING, reason=NO_MANIFEST)
    if all(isinstance(one, int | float) for one in found):
        found.sort()
    texts = [_text(one) for one in found]
    shown = [Source(m.path.removesuffix("/manifest.json"), _text(value(m)), m.path) for m in having]
    more = len(shown) - SHOWN
    detail = f"In {len(having)} manifests" + (f", of which {SHOWN} are named." if more > 0 else ".")
    return Cell(listing(texts, "or"), detail=detail, sources=tuple(shown[:SHOWN]))


def _text(value: Any) -> str:
    """As a person would write it: 0.0001, 16, advantage."""
    return f"{value:g}" if isinstance(value, float) else str(value)
