"""The base of all settings: what no value may be, whatever it is for."""

from collections.abc import Iterator
from itertools import zip_longest
from reprlib import Repr
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

LARGEST = 2**31 - 1  # of whole numbers: what torch, numpy and C take everywhere
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100
_SHORT.maxlist = 10


def not_allowed(key: str, value: Any, allowed: str) -> str:
    """Return what is wrong with a value, and what would be right."""
    return f"{key}: {_SHORT.repr(value)} is not allowed; allowed: {allowed}"


class Settings(BaseModel):
    """Names that are known, with values of which nothing comes otherwise than it was meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _are_as_given(cls, values: Any, handler):
        made = handler(values)
        for name, given in values.items() if isinstance(values, dict) else ():
            for wrong in unusable(getattr(made, name, None), given, name):
                raise ValueError(wrong)
        return made


def unusable(made: Any, given: Any, key: str) -> Iterator[str]:
    """Yield what no setting may be, whatever its type.

    Args:
        made: what validation made of what was `given`; settings have looked at themselves.
    """
    if isinstance(made, dict):
        for name, value in made.items():
            each = (given.get(name), f"{key}.{name}") if isinstance(given, dict) else (given, key)
            yield from unusable(value, *each)
    elif isinstance(made, list):
        pairs = zip_longest(made, given if isinstance(given, list) else [])
        for place, (one, value) in enumerate(pairs):
            yield from unusable(one, value, f"{key}.{place}")
        if any(one in made[:place] for place, one in enumerate(made)):
            yield not_allowed(key, given, "each once")
    elif isinstance(given, bool) and isinstance(made, int | float) and given is not made:
        yield not_allowed(key, given, "a number")
    elif isinstance(made, int) and abs(made) > LARGEST:
        yield not_allowed(key, given, f"at most {LARGEST}")
    elif isinstance(made, str) and not made.isprintable():
        yield not_allowed(key, given, "a text without control characters")
