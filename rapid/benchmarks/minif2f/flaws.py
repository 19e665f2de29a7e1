"""Known flaws of miniF2F's statements: flaws.yaml lists them, this module finds them."""

import re
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from rapid.artifacts.files import Record

FILE = Path(__file__).with_name("flaws.yaml")


class Flaw(Record):
    """A flaw of a published statement. The kinds are explained in flaws.yaml."""

    name: str = Field(description="name of the theorem")
    split: Literal["valid", "test"] = Field(description="the half of miniF2F")
    kind: Literal["unprovable", "vacuous", "trivial", "malformed"]
    why: str = Field(description="what is wrong")
    parts: tuple[str, ...] = Field(
        min_length=1, description="texts; a statement that contains one of them has the flaw"
    )
    source: str = Field(description="where the flaw is reported or repaired")


@cache
def load_flaws() -> tuple[Flaw, ...]:
    """Return the listed flaws."""
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    sources = document["sources"]
    return tuple(
        Flaw.model_validate(row | {"source": sources[row["source"]]}) for row in document["flaws"]
    )


def find_flaw(name: str, statement: str) -> Flaw | None:
    """Return the listed flaw of a theorem's statement; None if the statement has no listed flaw."""
    text = normalize(statement)
    candidates = (flaw for flaw in load_flaws() if flaw.name == name)
    return next(
        (flaw for flaw in candidates if any(normalize(part) in text for part in flaw.parts)), None
    )


def normalize(statement: str) -> str:
    """Return a statement without spaces, except before "!", and with "in" for "∈".

    Copies of miniF2F differ in these. `n !` is a factorial, but `n!` is the name of a variable.
    """
    return re.sub(r"\s+(?!!)", "", re.sub(r"\s+!", " !", statement)).replace("∈", "in")
