"""Models without dropout, so that log pi and log mu are of one and the same network."""

from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedConfig

RANDOM_FIELD_WORDS = (
    "drop",
    "jitter",
    "noise",
)  # in names of probabilities and widths that are for training


def remove_dropout(model) -> None:
    """Make a model compute the same while it is trained as otherwise, also in its adapters.

    Layers of dropout have a probability `p`; others keep theirs in a number, or one per adapter, or
    read it from their configuration in each forward pass (Falcon). What is saved keeps its own.
    """
    for module, name in list(_find_dropout(model)):
        value = getattr(module, name)
        if isinstance(value, dict):
            value.update(dict.fromkeys(value, 0.0))
        elif not isinstance(value, PreTrainedConfig):
            setattr(module, name, 0.0)
        elif not hasattr(module, "save_pretrained"):
            module.config = _zero_dropout_view(value)


def has_dropout(model) -> bool:
    """Return whether there is something that `remove_dropout` leaves out, used or not."""
    return any(True for _ in _find_dropout(model))


def _find_dropout(model) -> Iterator[tuple[Any, str]]:
    """Yield modules and the names of their attributes that make training random."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, PreTrainedConfig):
                is_random = name == "config" and bool(_random_fields(value))
            elif "Dropout" in type(module).__name__ and name == "p":
                is_random = bool(value)
            else:
                values = value.values() if isinstance(value, dict) else [value]
                is_random = _is_random(name) and any(isinstance(v, float) and v for v in values)
            if is_random:
                yield module, name


def _zero_dropout_view(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return a view of a configuration that says 0 of all dropout; it follows its other changes."""
    zeros = {name: property(lambda _: 0.0) for name in _random_fields(config)}
    view: PreTrainedConfig = object.__new__(type(type(config).__name__, (type(config),), zeros))
    object.__setattr__(view, "__dict__", vars(config))
    return view


def _random_fields(config: PreTrainedConfig) -> list[str]:
    values = vars(config).items()
    return [name for name, p in values if _is_random(name) and isinstance(p, float) and p]


def _is_random(name: str) -> bool:
    return any(word in name for word in RANDOM_FIELD_WORDS)
