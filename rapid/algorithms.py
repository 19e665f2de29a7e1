"""Names of algorithms, and what they say.

    sft, grpo, naive-grpo, pg, dapo    the baselines
    rapid-H4                           RAPID with H = 4
    rapid-H4,eta=4,clip=both           a variant: an algorithm with other values of some parameters

Variants are how studies change one thing at a time: a run's folder has the variant's name.
"""

import re
from functools import cache
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
)
from pydantic_core import PydanticCustomError

BASELINES = ("grpo", "naive-grpo", "pg", "dapo")  # RL algorithms other than RAPID
RAPID = "rapid"
# Of a run's folder; parse() says whether the name means something.
PATTERN = r"(sft|grpo|naive-grpo|pg|dapo|rapid-H[1-9][0-9]*)(,[a-z_]+=[a-z0-9.]+)*"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Clip = Literal["advantage", "both", "nowhere"]
Baseline = Literal["group", "others", "none"]
GroupSize = Annotated[int, Field(ge=2)]


class Changes(BaseModel):
    """The parameters that a variant may set; those that it leaves alone are None."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    eta: Positive | None = None
    clip: Clip | None = None
    baseline: Baseline | None = None
    weighted: bool | None = None
    group_size: GroupSize | None = None
    n_step: PositiveInt | None = None
    epochs: PositiveInt | None = None
    learning_rate: Positive | None = None
    snapshots: PositiveInt | None = Field(None, description="models kept on the way, evaluated too")

    def within(self, names) -> dict:
        """Those that are set, of these names."""
        found = self.model_dump(exclude_none=True)
        return {name: found[name] for name in names if name in found}


OF_RAPID = ("eta", "clip", "baseline", "weighted")


class Algorithm(BaseModel):
    """A parsed name: its kind ("rapid" for every RAPID), H (1 for the others), and its changes."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: str
    H: int
    changes: Changes

    @property
    def plain(self) -> str:
        """The name without changes."""
        return self.name.split(",")[0]


@cache
def parse(name: str) -> Algorithm:
    """What a name says.

    Raises:
        ValueError: it is no name of an algorithm; the message says what is allowed.
    """
    if not re.fullmatch(PATTERN, name):
        raise ValueError(
            f"one of sft, {', '.join(BASELINES)} or rapid-H4 (any H from 1); a variant adds "
            f"',name=value', of {', '.join(Changes.model_fields)}"
        )
    plain, *pairs = name.split(",")
    kind, _, h = plain.partition("-H")
    try:
        changes = Changes.model_validate(dict(pair.split("=") for pair in pairs))
    except ValidationError as error:
        first = error.errors()[0]
        what = first["msg"].removeprefix("Input should be ").removeprefix("Extra inputs are ")
        raise ValueError(
            f"{first['loc'][0]} as {what}; a variant changes {', '.join(Changes.model_fields)}"
        ) from None
    foreign = [] if kind == RAPID else list(changes.within(OF_RAPID))
    if kind == "sft" and pairs:
        raise ValueError("sft as it is: it has no variants")
    if foreign:
        raise ValueError(f"{plain} without {', '.join(foreign)}, which only RAPID has")
    return Algorithm(name=name, kind=kind, H=int(h or 1), changes=changes)


def _known(name: str) -> str:
    try:
        parse(name)
    except ValueError as error:
        raise PydanticCustomError("algorithm", "{allowed}", {"allowed": str(error)}) from None
    return name


AlgorithmName = Annotated[str, AfterValidator(_known)]
