"""Removes dropout from models, so that log pi and log mu come from the same network.

log pi is the log-probabilities of sampled tokens under the policy in training, and log mu is those
under the policy that sampled them.
"""

from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedConfig

# Words in the names of attributes that set the probability or the strength of noise in training.
RANDOM_FIELD_WORDS = ("drop", "jitter", "noise")


def remove_dropout(model) -> None:
    """Make a model and its adapters compute the same in training mode as in evaluation mode.

    Dropout layers have the probability in `p`. Other modules have it in an attribute of another
    name, as a number or as a dict with a number per adapter, or read it from their configuration in
    each forward pass (Falcon). The configuration that is saved with the model does not change.
    """
    for module, name in list(_find_dropout(model)):
        value = getattr(module, name)
        if isinstance(value, dict):
            value.update(dict.fromkeys(value, 0.0))
        elif not isinstance(value, PreTrainedConfig):
            setattr(module, name, 0.0)
        elif not hasattr(module, "save_pretrained"):  # else it is a model, which saves its config
            module.config = _zero_dropout_view(value)


def has_dropout(model) -> bool:
    """Return whether a model has noise that `remove_dropout` would remove."""
    return any(True for _ in _find_dropout(model))


def _find_dropout(model) -> Iterator[tuple[Any, str]]:
    """Yield each module with noise in training mode, and the attribute that sets the noise."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, PreTrainedConfig):
                is_random = name == "config" and bool(_find_noise_fields(value))
            elif "Dropout" in type(module).__name__ and name == "p":
                is_random = bool(value)
            else:
                values = value.values() if isinstance(value, dict) else [value]
                is_random = _sets_noise(name) and any(isinstance(v, float) and v for v in values)
            if is_random:
                yield module, name


def _zero_dropout_view(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return a view of a configuration in which all dropout is 0.

    The view shares the configuration's attributes, so that it shows later changes of other values.
    """
    # A property of the class takes precedence over an attribute of the same name.
    zeros = {name: property(lambda _: 0.0) for name in _find_noise_fields(config)}
    view: PreTrainedConfig = object.__new__(type(type(config).__name__, (type(config),), zeros))
    object.__setattr__(view, "__dict__", vars(config))
    return view


def _find_noise_fields(config: PreTrainedConfig) -> list[str]:
    """Return the names of a configuration's fields that set noise, and are not 0."""
    values = vars(config).items()
    return [name for name, p in values if _sets_noise(name) and isinstance(p, float) and p]


def _sets_noise(name: str) -> bool:
    """Return whether an attribute of this name sets the strength of noise in training."""
    return any(word in name for word in RANDOM_FIELD_WORDS)
