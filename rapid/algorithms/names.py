"""Names of algorithms, and their meaning.

    sft, grpo, pg, cispo         as they are
    rapid-H4, grpo-H4            with H = 4, optimizer steps on one inference batch
    rapid-H4,eta=4,clip=both     a variant: an algorithm with other values of some parameters

Variants are how studies change one thing at a time: a run's folder has the variant's name.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    create_model,
)

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.base import Algorithm
from rapid.settings import Settings
from rapid.text import suggest

GroupSize = Annotated[int, Field(ge=2)]
CHANGES = r"(,[a-z_]+=-?[a-z0-9.]+)*"


class Changes(Settings):
    """The parameters that any variant may set; those that it leaves alone are None."""

    group_size: GroupSize | None = None
    n_step: PositiveInt | None = None
    epochs: PositiveInt | None = None
    learning_rate: PositiveFloat | None = None
    max_grad_norm: PositiveFloat | None = Field(
        None, description="1, TRL's default, where none is set"
    )
    problems: PositiveInt | None = Field(None, description="training problems, the first so many")
    snapshots: PositiveInt | None = Field(None, description="models kept on the way, evaluated too")
    skip_zero_groups: bool | None = Field(
        None, description="false runs groups without a gradient too, for their importance weights"
    )

    def within(self, names) -> dict:
        """Return those that are set, of these names."""
        found = self.model_dump(exclude_none=True)
        return {name: found[name] for name in names if name in found}


@dataclass(frozen=True)
class Name:
    """A parsed name: its algorithm, H (1 where it says none), and its changes."""

    name: str
    algorithm: Algorithm
    H: int
    changes: Changes

    @property
    def plain(self) -> str:
        """The name without changes."""
        return self.name.split(",")[0]

    @property
    def label(self) -> str:
        """How reports print it, without changes: RAPID (H=8)."""
        return self.algorithm.label + (f" (H={self.H})" if "-H" in self.plain else "")


def pattern() -> str:
    """Return a regular expression of all names; `parse` says whether a match means something."""
    return f"({'|'.join(one.pattern for one in ALGORITHMS.values())}){CHANGES}"


@cache
def parse(name: str) -> Name:
    """Return a name's algorithm, H and changes.

    Raises:
        ValueError: it is no name of an algorithm; the message says what is allowed.
    """
    if exponent := re.search(r"=(\d+(\.\d+)?e-?\d+)(,|$)", name):
        raise ValueError(
            f"{name.replace(exponent[1], _decimal(float(exponent[1])))}, without an exponent"
        )
    if not re.fullmatch(pattern(), name):
        raise ValueError(_allowed() + _suggest(name))
    plain, *pairs = name.split(",")
    kind, _, h = plain.partition("-H")
    algorithm = ALGORITHMS[kind]
    given = dict(pair.split("=") for pair in pairs)
    if len(given) < len(pairs):
        raise ValueError(f"{plain} with each change once")
    if algorithm.imitates and given:
        raise ValueError(f"{kind} as it is: it has no variants")
    if foreign := [key for key in given if key not in _own(algorithm) and _owners(key)]:
        owners = " and ".join(dict.fromkeys(label for key in foreign for label in _owners(key)))
        verb = "have" if " and " in owners else "has"
        raise ValueError(f"{plain} without {', '.join(foreign)}, which only {owners} {verb}")
    changes = _changes(algorithm)
    keys = [*changes.model_fields]
    may_change = f"a variant changes {', '.join(keys)}"
    if unknown := [key for key in given if key not in keys]:
        meant = suggest(unknown[0], keys)
        raise ValueError(f"{plain} without {', '.join(unknown)}; {may_change}{meant}")
    try:
        found = changes.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        key, what = first["loc"][0], first["msg"].removeprefix("Input should be ")
        raise ValueError(f"{key} as {what}; {may_change}") from None
    return Name(name, algorithm, int(h or 1), found)


def variant(name: str, **changes: float) -> str:
    """Return the name of an algorithm with changes: pg, learning_rate=1e-4 -> pg,...=0.0001."""
    return ",".join([name, *(f"{key}={_decimal(value)}" for key, value in changes.items())])


def _decimal(value: float) -> str:
    return f"{value:.12f}".rstrip("0").rstrip(".")


def imitates(name: str) -> bool:
    """Return whether an algorithm learns from a teacher's demonstrations; the others are RL."""
    return parse(name).algorithm.imitates


def _own(algorithm: Algorithm) -> dict:
    """Return the fields of an algorithm's own parameters that a variant may set, by name."""
    kind = None if algorithm.imitates else algorithm.parameters
    return kind.model_fields if kind else {}


def _owners(key: str) -> list[str]:
    """Return the labels of the algorithms that have a parameter."""
    return [one.label for one in ALGORITHMS.values() if key in _own(one)]


@cache
def _changes(algorithm: Algorithm) -> type[Changes]:
    own: dict[str, Any] = {
        name: (field.rebuild_annotation() | None, None) for name, field in _own(algorithm).items()
    }
    shared = {name: (field.annotation, field) for name, field in Changes.model_fields.items()}
    return create_model("Changes", __base__=Changes, **(own | shared))


def _allowed() -> str:
    without = [name for name, one in ALGORITHMS.items() if one.H != "required"]
    needing = [one.at(4) for one in ALGORITHMS.values() if one.H == "required"]
    taking = [name for name, one in ALGORITHMS.items() if one.H == "optional"]
    return (
        f"one of {', '.join(without)} or {', '.join(needing)} (any H from 1; {', '.join(taking)} "
        f"take one too); a variant adds ',name=value', of an algorithm's parameters or of "
        f"{', '.join(Changes.model_fields)}"
    )


def _suggest(name: str) -> str:
    """Return the question whether a name near to this one was meant, without its changes."""
    plain = name.partition(",")[0]
    digits = re.search(r"-[hH]([1-9]\d*)$", plain)
    ratio = int(digits[1]) if digits else 4
    without = [one.name for one in ALGORITHMS.values() if one.H != "required"]
    return suggest(
        plain, [*without, *(one.at(ratio) for one in ALGORITHMS.values() if one.H != "none")]
    )


def _known(name: str) -> str:
    parse(name)
    return name


AlgorithmName = Annotated[str, AfterValidator(_known)]
