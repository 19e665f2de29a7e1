"""Schema of the section `studies` of params.yaml: ablations, and predictions about them."""

import math
from operator import not_
from typing import Annotated

from pydantic import Field, model_validator

from rapid.algorithms.variant_names import AlgorithmName, parse_variant_name
from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.config.params_schema import (
    BenchmarkName,
    ModelName,
    NameWithoutDots,
    Section,
    Seed,
)
from rapid.settings import describe_invalid


class Study(Section):
    """A comparison of algorithms or variants on one benchmark, each with the first of them.

    A variant is an algorithm with changed parameters, such as rapid-H16,eta=1. Variants usually
    differ from the first in one parameter, but this is not checked.
    """

    benchmark: BenchmarkName
    # `exclude_if`: what is not set is left out of the parameters that reach the report as JSON.
    model: ModelName | None = Field(
        None, exclude_if=not_, description="by default that of the main table"
    )
    sweep: str = Field(
        "",
        exclude_if=not_,
        description="a parameter; a further figure shows the variants by its value",
    )
    algorithms: list[AlgorithmName] = Field(
        min_length=2, description="algorithms and variants; the others are compared with the first"
    )

    @model_validator(mode="after")
    def _check_sweep(self):
        for name in self.algorithms if self.sweep else ():
            names = list(parse_variant_name(name).algorithm.parameters_by_config_field.values())
            if self.sweep not in names:
                reason = f"must be a parameter of {name}: {', '.join(names) or 'it has none'}"
                raise ValueError(describe_invalid("sweep", self.sweep, reason))
        return self


class Hypothesis(Section):
    """A preregistered prediction: a weighted sum of a metric over variants is within limits."""

    claim: str = Field(min_length=1, description="the prediction in words, without a full stop")
    studies: list[NameWithoutDots] = Field(
        min_length=1, description="studies; the prediction is tested in each of them"
    )
    metric: Annotated[str, Field(pattern=rf"^(pass@[1-9]\d*|{'|'.join(EVALUATION_METRICS)})$")] = (
        "pass@1"
    )
    contrast: dict[AlgorithmName, float] = Field(
        min_length=1, description="weight of each variant in the sum"
    )
    # `exclude_if`: JSON has no infinity, and the parameters reach the report as JSON.
    above: float = Field(
        -math.inf, exclude_if=math.isinf, description="the sum is greater than this limit"
    )
    below: float = Field(
        math.inf, exclude_if=math.isinf, description="the sum is less than this limit"
    )

    @model_validator(mode="after")
    def _check_limits(self):
        if not self.above < self.below or {self.above, self.below} == {-math.inf, math.inf}:
            reason = "must be lower than `below`; at least one of the two is needed"
            raise ValueError(describe_invalid("above", self.above, reason))
        return self


class Studies(Section):
    """Ablations (docs/studies.md), with the main table's model unless a study names another."""

    seeds: list[Seed] = Field(
        default_factory=list, min_length=1, description="by default those of the main table"
    )
    compared: dict[NameWithoutDots, Study]
    hypotheses: dict[NameWithoutDots, Hypothesis] = Field(default_factory=dict, exclude_if=not_)

    @model_validator(mode="after")
    def _check_hypotheses(self):
        for key, hypothesis in self.hypotheses.items():
            for name in hypothesis.studies:
                if name not in self.compared:
                    reason = f"must be one of {', '.join(self.compared)}"
                    raise ValueError(describe_invalid(f"hypotheses.{key}.studies", name, reason))
                for algorithm in hypothesis.contrast:
                    if algorithm not in self.compared[name].algorithms:
                        reason = f"must be an algorithm of the study {name}"
                        raise ValueError(
                            describe_invalid(f"hypotheses.{key}.contrast", algorithm, reason)
                        )
        return self
