"""The section `arena` of params.yaml: the algorithms to compare, and preregistered claims.

docs/arena.md describes the arena and its report.

N_step is the number of completions of an optimizer step, and H the number of optimizer steps on one
inference batch, which has H x N_step completions. PG is policy gradient.

fields    for each benchmark: the algorithms with their learning rates, and claims about them
maps      for each benchmark: RAPID at several N_step and H; a cell of the map is one such pair
tuning    if present, the algorithms of the fields are run at these learning rates instead
only      if present, only these algorithms are run; the file `record` has results of the others
"""

from collections.abc import Iterator
from functools import partial
from operator import eq
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from rapid.algorithms import PG, RAPID
from rapid.algorithms.variant_names import AlgorithmName, format_variant
from rapid.config.params_schema import BenchmarkName, Probability, Section, Seed, Size
from rapid.settings import describe_invalid

# What a claim compares: training seconds until an accuracy is reached, accuracy after equally many
# completions, or accuracy after equal training time.
EndPoint = Literal["seconds", "accuracy", "accuracy_in_time"]
# How a tuning chooses a learning rate (`Arena.rate_rule`).
RateRule = Literal["smoothed", "highest"]
# Runs to make on a benchmark: each algorithm with each seed. The names contain changed parameters.
Entry = tuple[BenchmarkName, list[AlgorithmName], list[Seed]]
Count = Annotated[int, Field(ge=1, le=1000)]
DEFAULT_GAIN_SHARE = 0.75  # see `ArenaField.gain_share`


def list_seeds(seeds: int | list[Seed]) -> list[Seed]:
    """Return the seeds in a list; for a number of seeds, 1, 2, ..."""
    return seeds if isinstance(seeds, list) else list(range(1, seeds + 1))


class Claim(Section):
    """A preregistered claim that algorithm `ours` is better than `theirs`, or as good."""

    ours: AlgorithmName
    theirs: AlgorithmName
    by: EndPoint
    expect: Literal["better", "same"] = "better"

    @model_validator(mode="after")
    def _check_expectation(self):
        if (self.by, self.expect) == ("seconds", "same"):
            reason = "must be 'better' if `by` is seconds"
            raise ValueError(describe_invalid("expect", self.expect, reason))
        return self


class ArenaField(Section):
    """The algorithms that are compared on one benchmark."""

    seeds: Count | Annotated[list[Seed], Field(min_length=1)] = Field(
        description="number of seeds, which are 1, 2, ..., or a list of seeds"
    )
    more_seeds: dict[AlgorithmName, Count] = Field(
        default_factory=dict, description="number of seeds of algorithms that need more for a claim"
    )
    problems: Size = Field(description="number of training problems")
    snapshots: Size = Field(description="number of models saved during training and evaluated")
    reach: Probability | None = Field(
        None,
        description="target accuracy on the test problems in claims about seconds; by default it "
        "follows from PG's gain and `gain_share`",
    )
    gain_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        DEFAULT_GAIN_SHARE,
        exclude_if=partial(eq, DEFAULT_GAIN_SHARE),
        description="the target accuracy, if `reach` is not set and in a tuning, is the accuracy "
        "before training plus this share of PG's gain in accuracy",
    )
    rates: dict[AlgorithmName, PositiveFloat] = Field(
        min_length=2, description="learning rate of each algorithm, as chosen by tuning"
    )
    same_rate: dict[AlgorithmName, AlgorithmName] = Field(
        default_factory=dict,
        description="algorithms that are not tuned, each with another one whose tuned rate it uses",
    )
    claims: list[Claim] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_rates(self):
        claimed = [name for claim in self.claims for name in (claim.ours, claim.theirs)]
        equal = [name for pair in self.same_rate.items() for name in pair]
        for name in [PG.name, *claimed, *self.more_seeds, *equal]:
            if name not in self.rates:
                raise ValueError(f"rates: no learning rate for {name}")
        for name, tuned_name in self.same_rate.items():
            if tuned_name in self.same_rate:
                reason = "must be tuned itself, and not be in same_rate"
                raise ValueError(describe_invalid(f"same_rate.{name}", tuned_name, reason))
            if self.rates[name] != self.rates[tuned_name]:
                reason = f"must be {self.rates[tuned_name]:g}, the rate of {tuned_name} (same_rate)"
                raise ValueError(describe_invalid(f"rates.{name}", self.rates[name], reason))
        return self

    def get_seeds(self, name: AlgorithmName) -> list[Seed]:
        """Return the seeds of an algorithm."""
        return list_seeds(self.more_seeds.get(name, self.seeds))

    def run_name(self, name: AlgorithmName) -> AlgorithmName:
        """Return the algorithm's name with the parameters that this field changes."""
        rate = self.rates[name]
        return format_variant(
            name, problems=self.problems, learning_rate=rate, snapshots=self.snapshots
        )

    def trial_name(self, name: AlgorithmName, rate: float) -> AlgorithmName:
        """Return the algorithm's name with the parameters of a tuning run at this learning rate."""
        return format_variant(name, problems=self.problems, learning_rate=rate)


class ArenaMap(Section):
    """RAPID at several N_step and H on one benchmark. With H = 1 RAPID is on-policy."""

    seeds: Count = Field(description="number of seeds, which are 1, 2, ...")
    problems: Size = Field(description="number of training problems")
    n_step: list[Size] = Field(min_length=1)
    H: list[PositiveInt] = Field(
        min_length=2, description="values of H; the others are compared with the first"
    )
    rate: PositiveFloat | None = Field(
        None, description="learning rate at the first n_step; by default PG's in the field"
    )

    def run_name(self, n_step: int, h: int) -> AlgorithmName:
        """Return RAPID's name with the parameters of the map's cell at N_step and H.

        The learning rate grows with the square root of N_step.
        """
        rate = float(f"{self.rate * (n_step / self.n_step[0]) ** 0.5:.3g}")
        return format_variant(
            RAPID.format_name(h), n_step=n_step, problems=self.problems, learning_rate=rate
        )


class Tuning(Section):
    """Learning rates to try for the algorithms of each field, all with the same seeds."""

    rates: dict[BenchmarkName, list[PositiveFloat]] = Field(
        description="learning rates to try, for each field"
    )
    seeds: list[Seed] = Field(min_length=1)


class Arena(Section):
    """The comparison of algorithms described in docs/arena.md, with the main table's model."""

    margin: Probability = Field(
        0.02, description="accuracies are regarded as equal if they differ by at most the margin"
    )
    rate_rule: RateRule = Field(
        "smoothed",
        description="which learning rate a tuning chooses: highest: the one with the highest mean "
        "accuracy; smoothed: the same after averaging with the neighbouring rates",
    )
    only: list[AlgorithmName] = Field(
        default_factory=list,
        description="run only these algorithms; the file `record` has results of the others",
    )
    record: str = Field("", description="file with earlier results of all algorithms, by seed")
    clustered: bool = Field(
        False,
        description="errors of accuracies are clustered over skeletons: generated problems that "
        "differ only in their numbers",
    )
    fields: dict[BenchmarkName, ArenaField] = Field(default_factory=dict)
    maps: dict[BenchmarkName, ArenaMap] = Field(default_factory=dict)
    tuning: Tuning | None = None

    @model_validator(mode="after")
    def _check_record_and_tuning(self):
        if self.only and PG.name not in self.only:
            reason = f"must include {PG.name}, which the others are compared with"
            raise ValueError(describe_invalid("only", self.only, reason))
        if self.only and not self.record:
            raise ValueError(
                "record: is missing; with arena.only, name a file with results of the other "
                "algorithms"
            )
        for name in self.fields:
            if self.tuning and not self.tuning.rates.get(name):
                raise ValueError(f"tuning.rates: no learning rates for {name}")
        return self

    @model_validator(mode="after")
    def _fill_in_map_rates(self):
        """Set missing learning rates of maps to policy gradient's rate in the benchmark's field."""
        for name, arena_map in self.maps.items():
            if arena_map.rate is None:
                if name not in self.fields:
                    raise ValueError(
                        f"maps.{name}.rate: is missing; name a learning rate, or add {name} to "
                        "arena.fields"
                    )
                rate = self.fields[name].rates[PG.name]
                self.maps[name] = arena_map.model_copy(update={"rate": rate})
        return self

    def list_algorithms(self, field: ArenaField) -> list[AlgorithmName]:
        """List the algorithms of a field that are run: those in `only`, or all if it is empty."""
        return [name for name in field.rates if name in self.only or not self.only]

    @property
    def planned_maps(self) -> dict[BenchmarkName, ArenaMap]:
        """The maps that are run: none in a tuning, or if `only` is set."""
        return {} if self.tuning or self.only else self.maps

    def list_entries(self) -> Iterator[Entry]:
        """Yield the runs to make, as benchmark, names of algorithms with changes, and seeds."""
        for benchmark, field in self.fields.items():
            for name in self.list_algorithms(field):
                if self.tuning is None:
                    # With `only`, no claim is tested, so `more_seeds` is not needed.
                    seeds = list_seeds(field.seeds) if self.only else field.get_seeds(name)
                    yield benchmark, [field.run_name(name)], seeds
                elif name not in field.same_rate:  # else no tuning is needed
                    rates = self.tuning.rates[benchmark]
                    trial_names = [field.trial_name(name, rate) for rate in rates]
                    yield benchmark, trial_names, self.tuning.seeds
        for benchmark, arena_map in self.planned_maps.items():
            cells = [(n_step, h) for n_step in arena_map.n_step for h in arena_map.H]
            names = [arena_map.run_name(n_step, h) for n_step, h in cells]
            yield benchmark, names, list_seeds(arena_map.seeds)
