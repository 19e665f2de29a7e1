"""The base of all settings: what no value may be, whatever it is for."""

from collections.abc import Iterator
from itertools import zip_longest
from reprlib import Repr
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from rapid.text import suggest

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
        try:
            made = handler(values)
        except ValidationError as error:
            lines = [_name_keys(item, [*cls.model_fields], values) for item in error.errors()]
            raise ValidationError.from_exception_data(cls.__name__, lines) from None
        for name, given in values.items() if isinstance(values, dict) else ():
            for wrong in unusable(getattr(made, name, None), given, name):
                raise ValueError(wrong)
        return made


def _name_keys(item: Any, keys: list[str], values: Any) -> Any:
    """Return an error of validation as it is; of a key that is none, with those that there are."""
    place = item["loc"]
    if item["type"] != "extra_forbidden" or len(place) > 1:
        return item
    allowed = f"one of {', '.join(keys)}{suggest(str(place[0]), keys)}"
    wrong = ValueError(f"{place[0]}: is not a key; allowed: {allowed}")
    return {"type": "value_error", "loc": (), "input": values, "ctx": {"error": wrong}}


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
