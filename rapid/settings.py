"""The base class of all settings, which rejects unknown keys and unusable values."""

from collections.abc import Iterator
from itertools import zip_longest
from reprlib import Repr
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from rapid.text import suggest_name

LARGEST = 2**31 - 1  # largest integer of a setting: torch, numpy and C accept it
_SHORT_REPR = Repr()  # abbreviates long values in error messages
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 100
_SHORT_REPR.maxlist = 10


def describe_invalid(key: str, value: Any, reason: str) -> str:
    """Return an error message: the key, its value, and why the value is invalid."""
    text = "null" if value is None else _SHORT_REPR.repr(value)  # as in YAML and JSON
    return f"{key}: {text} is invalid: {reason}"


class Settings(BaseModel):
    """Base class of settings. Unknown keys and conversions that lose information are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _validate_strictly(cls, values: Any, handler):
        try:
            settings = handler(values)
        except ValidationError as error:
            lines = [
                _name_allowed_keys(item, [*cls.model_fields], values) for item in error.errors()
            ]
            raise ValidationError.from_exception_data(cls.__name__, lines) from None
        for key, user_value in values.items() if isinstance(values, dict) else ():
            for message in find_unusable_values(getattr(settings, key, None), user_value, key):
                raise ValueError(message)
        return settings


def _name_allowed_keys(item: Any, keys: list[str], values: Any) -> Any:
    """Return an item of a ValidationError; list the valid keys if it is about an unknown key."""
    location = item["loc"]
    if item["type"] != "extra_forbidden" or len(location) > 1:
        return item
    valid_keys = f"{', '.join(keys)}{suggest_name(str(location[0]), keys)}"
    error = ValueError(f"{location[0]}: is not a key; the keys are {valid_keys}")
    return {"type": "value_error", "loc": (), "input": values, "ctx": {"error": error}}


def find_unusable_values(value: Any, user_value: Any, key: str) -> Iterator[str]:
    """Yield an error message for each value that pydantic accepts but no setting may have.

    Such values are a list with duplicates, a bool in place of a number, an integer whose absolute
    value is above `LARGEST`, and a text with control characters.

    Args:
        value: the validated value. Nested settings are skipped, as they have been checked already.
        user_value: the value as the user wrote it.
        key: dotted key of the value, for messages.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            if isinstance(user_value, dict):
                yield from find_unusable_values(item, user_value.get(name), f"{key}.{name}")
            else:
                yield from find_unusable_values(item, user_value, key)
    elif isinstance(value, list):
        user_items = user_value if isinstance(user_value, list) else []
        for index, (item, user_item) in enumerate(zip_longest(value, user_items)):
            yield from find_unusable_values(item, user_item, f"{key}.{index}")
        if any(item in value[:index] for index, item in enumerate(value)):
            yield describe_invalid(key, user_value, "a value is in the list more than once")
    elif (
        isinstance(user_value, bool) and isinstance(value, int | float) and user_value is not value
    ):
        yield describe_invalid(key, user_value, "must be a number")
    elif isinstance(value, int) and abs(value) > LARGEST:
        yield describe_invalid(key, user_value, f"its absolute value must be at most {LARGEST}")
    elif isinstance(value, str) and not value.isprintable():
        yield describe_invalid(key, user_value, "must not contain control characters")
