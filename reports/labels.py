"""The names of benchmarks, algorithms and runs as a reader sees them."""

import pandas as pd

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.benchmarks import BENCHMARKS
from rapid.config.specs import BASE


def benchmark(name: str) -> str:
    """Return the label of a benchmark: mbpp_plus -> MBPP+."""
    return BENCHMARKS[name].label


def algorithm(name: str) -> str:
    """Return the label of an algorithm: rapid-H8,eta=4 -> RAPID (H=8), eta = 4.

    An algorithm that the project does not have is called by its name.
    """
    plain, *changes = name.split(",")
    try:
        title = "Base" if plain == BASE else parse(plain).label
    except ValueError:
        return name
    return ", ".join([title, *(change.replace("=", " = ") for change in changes)])


def model_of(name: str) -> str:
    """Return the model that an algorithm leaves, or the one before training, in words."""
    return "the model before training" if name == BASE else f"the model of {algorithm(name)}"


def ratio(name: str) -> str:
    """Return what tells one RAPID from another, its H and changes: rapid-H4 -> H=4."""
    return f"H={name.removeprefix(f'{RAPID.name}-H')}"


def run(row: pd.Series) -> str:
    """Return the label of a run among those of several algorithms: PG, seed 1."""
    return f"{algorithm(row['algorithm'])}, seed {row['seed']}"
