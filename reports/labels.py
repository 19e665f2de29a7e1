"""The names of benchmarks, algorithms and runs that reports print."""

from typing import TYPE_CHECKING

from rapid.algorithms import ALGORITHMS, RAPID
from rapid.algorithms.variant_names import parse_variant_name
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.config.specs import BASE
from reports.render import tex

if TYPE_CHECKING:  # the workflow imports this module without pandas, to start faster
    import pandas as pd


class BadLabel(BadInput):
    """A label that a report cannot print."""


def check_labels() -> None:
    """Check that reports can print the labels of all algorithms and benchmarks.

    Raises:
        BadLabel: a label is empty, is also that of another algorithm or benchmark, or has a
            character that LaTeX's fonts lack.
    """
    for kind, classes in {"algorithm": ALGORITHMS, "benchmark": BENCHMARKS}.items():
        name_by_label: dict[str, str] = {}
        for name, named_class in classes.items():
            label = named_class.label
            if (other := name_by_label.setdefault(label, name)) != name:
                raise BadLabel(
                    f"{kind} {name}: label {label!a} is also that of {other}; give it its own label"
                )
            if not label.strip():
                raise BadLabel(f"{kind} {name}: label is empty; give it a text")
            if characters := tex.list_unprintable(label):
                shown = ", ".join(f"{char!a} (U+{ord(char):04X})" for char in characters)
                raise BadLabel(
                    f"{kind} {name}: label {label!a} has {shown}, which LaTeX cannot print; use "
                    "Latin or Greek letters and common signs"
                )


def benchmark(name: str) -> str:
    """Return the label of a benchmark: mbpp_plus -> MBPP+."""
    return BENCHMARKS[name].label


def algorithm(name: str) -> str:
    """Return the label of an algorithm: rapid-H8,eta=4 -> RAPID (H=8), eta = 4.

    The label of an algorithm that the project does not have is its name.
    """
    base_name, *changes = name.split(",")
    try:
        title = "Base" if base_name == BASE else parse_variant_name(base_name).label
    except ValueError:
        return name
    return ", ".join([title, *(change.replace("=", " = ") for change in changes)])


def describe_start_model(name: str) -> str:
    """Return words for the model of an algorithm, or of BASE, such as "the model of SFT"."""
    return "the model before training" if name == BASE else f"the model of {algorithm(name)}"


def h_label(name: str) -> str:
    """Return the H of RAPID as a short label, for tables of RAPID only: rapid-H4 -> H=4."""
    return f"H={name.removeprefix(f'{RAPID.name}-H')}"


def run(row: "pd.Series") -> str:
    """Return the label of a run, with its algorithm: PG, seed 1."""
    return f"{algorithm(row['algorithm'])}, seed {row['seed']}"
