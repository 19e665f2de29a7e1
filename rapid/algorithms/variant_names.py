"""Parses names of algorithms and of their variants.

    sft, grpo, pg, cispo         an algorithm, whose parameters are in params.yaml
    rapid-H4, grpo-H4            an algorithm with H = 4 optimizer steps per inference batch
    rapid-H4,eta=4,clip=both     a variant: an algorithm with other values of some parameters
    rapid-H4,reuse=2             a variant that takes the H steps twice on each inference batch

Studies compare variants, most of which differ in one parameter. The folder of a run has the name of
its variant.
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
from rapid.algorithms.training_parameters import Epochs, GroupSize, LearningRate, NStep, Reuse
from rapid.settings import Settings
from rapid.text import join_words, suggest_name

CHANGES_PATTERN = r"(,[a-z_]+=-?[a-z0-9.]+)*"


class Changes(Settings):
    """The parameters that a variant of any RL algorithm may change. None means unchanged."""

    group_size: GroupSize | None = None
    n_step: NStep | None = None
    reuse: Reuse | None = None
    epochs: Epochs | None = None
    learning_rate: LearningRate | None = None
    max_grad_norm: PositiveFloat | None = Field(
        None, description="largest norm of the gradient; by default 1, as in TRL"
    )
    problems: PositiveInt | None = Field(
        None, description="number of training problems; only the first ones are used"
    )
    snapshots: PositiveInt | None = Field(
        None, description="number of models saved during training and evaluated"
    )
    skip_zero_groups: bool | None = Field(
        None,
        description="false: also train on groups without a gradient, to record their weights",
    )

    def subset(self, names) -> dict:
        """Return the values of the changed parameters among `names`."""
        changes = self.model_dump(exclude_none=True)
        return {name: changes[name] for name in names if name in changes}


@dataclass(frozen=True)
class ParsedName:
    """A parsed name: the algorithm, H (1 by default), and the changes."""

    name: str
    algorithm: Algorithm
    H: int
    changes: Changes

    @property
    def base_name(self) -> str:
        """The name without the changes: rapid-H4."""
        return self.name.split(",")[0]

    @property
    def label(self) -> str:
        """The name in reports, without the changes: RAPID (H=8)."""
        return self.algorithm.label + (f" (H={self.H})" if "-H" in self.base_name else "")


def build_name_pattern() -> str:
    """Return a regular expression that matches all valid names.

    It also matches some names that `parse_variant_name` refuses.
    """
    names = "|".join(algorithm.name_pattern for algorithm in ALGORITHMS.values())
    return f"({names}){CHANGES_PATTERN}"


@cache
def parse_variant_name(name: str) -> ParsedName:
    """Return a name's algorithm, H and changes.

    Raises:
        ValueError: the name is not valid; the message says why.
    """
    # Values are written as decimals: 1e-4 is refused, and the message suggests 0.0001.
    if exponent := re.search(r"=(\d+(\.\d+)?e-?\d+)(,|$)", name):
        decimal = _format_decimal(float(exponent[1]))
        raise ValueError(f"numbers have no exponent; write {name.replace(exponent[1], decimal)}")
    if (compact := re.sub(r"\s", "", name)) != name and re.fullmatch(build_name_pattern(), compact):
        raise ValueError(f"must have no spaces; write {compact}")
    # Without quotes, a list [rapid-H8,eta=3] of YAML has the items rapid-H8 and eta=3.
    if re.fullmatch(CHANGES_PATTERN, f",{name}"):
        raise ValueError("must begin with an algorithm; write quotes: ['rapid-H8,eta=3', pg]")
    if not re.fullmatch(build_name_pattern(), name):
        raise ValueError(f"must be {_describe_valid_names()}{_suggest_name(name)}")
    base_name, *pairs = name.split(",")
    algorithm_name, _, h = base_name.partition("-H")
    algorithm = ALGORITHMS[algorithm_name]
    keys = [pair.partition("=")[0] for pair in pairs]
    if repeated := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise ValueError(f"changed twice: {', '.join(repeated)}")
    if algorithm.is_supervised and keys:
        raise ValueError(f"{algorithm_name} has no variants")
    changes_class = _build_changes_class(algorithm)
    valid_keys = dict.fromkeys([*_get_variant_fields(algorithm), *Changes.model_fields])
    for key in keys:
        if key not in valid_keys:
            raise ValueError(_explain_unknown_change(key, base_name, [*valid_keys]))
    try:
        changes = changes_class.model_validate(dict(pair.split("=") for pair in pairs))
    except ValidationError as error:
        raise ValueError(_describe_invalid_change(error)) from None
    return ParsedName(name, algorithm, int(h or 1), changes)


def _explain_unknown_change(key: str, base_name: str, valid_keys: list[str]) -> str:
    """Return why a variant of the algorithm `base_name` cannot change the parameter `key`."""
    algorithms = [a.label for a in ALGORITHMS.values() if key in _get_variant_fields(a)]
    if algorithms:
        return f"{key} is a parameter of {join_words(algorithms)} only"
    return (
        f"{base_name} has no parameter {key}; variants of it may change {', '.join(valid_keys)}"
        f"{suggest_name(key, valid_keys)}"
    )


def _describe_invalid_change(error: ValidationError) -> str:
    """Return why the first invalid value cannot be the value of its parameter."""
    details = error.errors()[0]
    if not details["loc"]:  # an error of `Settings`, whose message names the parameter
        return details["msg"].removeprefix("Value error, ")
    return f"{details['loc'][0]} must {details['msg'].removeprefix('Input should ')}"


def format_variant(name: str, **changes: float) -> str:
    """Return a variant's name: pg with learning_rate=1e-4 -> pg,learning_rate=0.0001."""
    return ",".join([name, *(f"{key}={_format_decimal(value)}" for key, value in changes.items())])


def _format_decimal(value: float) -> str:
    return f"{value:.12f}".rstrip("0").rstrip(".")


def is_supervised(name: str) -> bool:
    """Return whether a name's algorithm learns from demonstrations, without RL."""
    return parse_variant_name(name).algorithm.is_supervised


def _get_variant_fields(algorithm: Algorithm) -> dict:
    """Return the fields, by name, of an algorithm's own parameters that a variant may change."""
    if algorithm.is_supervised or not algorithm.parameters:
        return {}
    return algorithm.parameters.model_fields


@cache
def _build_changes_class(algorithm: Algorithm) -> type[Changes]:
    """Return a subclass of `Changes` that also has the algorithm's own parameters."""
    definitions: dict[str, Any] = {
        name: (field.rebuild_annotation() | None, None)
        for name, field in _get_variant_fields(algorithm).items()
    }
    # Where an algorithm's own parameter has the name of a field of `Changes`, the field stays.
    definitions |= {name: (field.annotation, field) for name, field in Changes.model_fields.items()}
    return create_model("Changes", __base__=Changes, **definitions)


def _list_names(*kinds: str, h: str = "") -> list[str]:
    """Return the names, with h at the end, of algorithms whose `h_in_name` is one of `kinds`."""
    return [a.name + h for a in ALGORITHMS.values() if a.h_in_name in kinds]


def _describe_valid_names() -> str:
    return (
        f"one of {', '.join(_list_names('optional', 'none'))} or "
        f"{', '.join(_list_names('required', h='-H4'))} (any H from 1; "
        f"{', '.join(_list_names('optional'))} can have an H too); a variant adds ',name=value', "
        f"where name is one of {', '.join(Changes.model_fields)}, or a parameter of the algorithm"
    )


def _suggest_name(name: str) -> str:
    """Return "; did you mean NAME?" with a similar valid name, or "" if there is none."""
    base_name = name.partition(",")[0]
    digits = re.search(r"-[hH]([1-9]\d*)$", base_name)
    with_h = _list_names("optional", "required", h=f"-H{digits[1] if digits else 4}")
    return suggest_name(base_name, [*_list_names("optional", "none"), *with_h])


def _check_name(name: str) -> str:
    parse_variant_name(name)
    return name


AlgorithmName = Annotated[str, AfterValidator(_check_name)]
