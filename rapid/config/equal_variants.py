"""Finds variants in one list that have the same parameters, though their names differ.

Their runs are equal, so a comparison of them would be one of a run with itself.
"""

from collections.abc import Collection
from itertools import combinations
from typing import Any

from rapid.algorithms.variant_names import AlgorithmName, parse_variant_name
from rapid.config.params_schema import BenchmarkName


def find_equal_variants(
    params: Any, benchmarks: Collection[BenchmarkName], names: Collection[AlgorithmName]
) -> tuple[AlgorithmName, AlgorithmName] | None:
    """Return the first two names whose runs are equal on each benchmark; None if none are.

    Args:
        params: a `Params`. Its module imports this one.
    """
    settings = {
        name: [_list_settings(params, benchmark, name) for benchmark in benchmarks]
        for name in names
    }
    pairs = combinations(settings, 2)
    return next((pair for pair in pairs if settings[pair[0]] == settings[pair[1]]), None)


def _list_settings(params: Any, benchmark: BenchmarkName, name: AlgorithmName) -> Any:
    """Return an algorithm, H, and the values of all parameters that its variants may change."""
    variant, sizes = parse_variant_name(name), params.benchmarks[benchmark]
    loss = variant.algorithm.get_loss_parameters(params)
    defaults = {
        **params.training.model_dump(),
        **(loss.model_dump() if loss else {}),
        "n_step": sizes.n_step,
        "problems": sizes.train,
        "snapshots": 0,
    }
    changes = variant.changes.model_dump(exclude_none=True)
    return variant.algorithm.name, variant.H, defaults | changes
