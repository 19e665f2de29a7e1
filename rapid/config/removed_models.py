"""Removes models all of whose benchmarks an overlay sets to null."""

from typing import Any

from rapid.config.sources import look_up
from rapid.settings import describe_invalid


def check_dropped_models(dropped: list[str], values: dict) -> None:
    """Raise ValueError if a model is named that was removed together with its benchmarks."""
    for key in ("teacher", "tables.main.model", "tables.families.models"):
        value = look_up(key, values)
        for name in value if isinstance(value, list) else [value]:
            if name in dropped:
                reason = (
                    "it is removed, because all its benchmarks are set to null; name another "
                    f"model, or set models.{name}.benchmarks"
                )
                raise ValueError(describe_invalid(key, name, reason))


def remove_benchmarks(removed: list[str], model: Any) -> Any:
    """Return a model's section without these benchmarks; None if no benchmark is left."""
    match model:
        case {"benchmarks": [*benchmarks], "error_rate": rates} if removed:
            benchmarks = [name for name in benchmarks if name not in removed]
            if isinstance(rates, dict):
                rates = {name: rate for name, rate in rates.items() if name not in removed}
            return model | {"benchmarks": benchmarks, "error_rate": rates} if benchmarks else None
    return model
