"""The input of all tables and figures: parameters, the data frame of runs, and manifests.

H is the number of optimizer steps that RAPID takes on one inference batch (the completions that are
sampled at once). Tables 1 to 4 are the paper's:

Table 1   all algorithms on all benchmarks, with the main model
Table 2   several models, of different families, on one benchmark
Table 3   RAPID at several H
Table 4   correlations of H with accuracy, runtime and staleness, over the runs of Table 3
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from rapid.algorithms import ALGORITHMS, PG, RAPID, SFT
from rapid.algorithms.variant_names import parse
from rapid.benchmarks.problem_source import ProblemSource
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import BASE, Run
from reports import labels
from reports.collect import collect, problem_sources
from reports.manifests import JobManifest, read_manifests

# Names of the algorithms that train on demonstrations in place of RL: SFT.
IMITATIONS = tuple(name for name, algorithm in ALGORITHMS.items() if algorithm.is_supervised)
# Algorithms whose runtime is shown but not ranked: the model before training, which has no training
# time, and imitation, which does no RL.
UNRANKED_RUNTIME = (BASE, *IMITATIONS)
BASELINE = PG.name  # the preregistered baseline of all comparisons: policy gradient


@dataclass(frozen=True)
class Contest:
    """The runs of one benchmark and model, by algorithm."""

    benchmark: str
    model: str
    runs: pd.DataFrame
    algorithms: list[str]
    problems: ProblemSource
    family: bool = False  # whether the model is one of those in Table 2, not the main model

    @property
    def label(self) -> str:
        """The benchmark and the kind of its problems: "MBPP+ (made)" if they are generated."""
        return self.problems.label

    @property
    def rapids(self) -> list[str]:
        """The algorithms that are RAPID at some H: rapid-H1, rapid-H4, ..."""
        return [name for name in self.algorithms if RAPID.matches_name(name)]

    def of(self, *algorithms: str) -> pd.DataFrame:
        """Return the runs of these algorithms, ordered as the algorithms."""
        runs = self.runs[self.runs.algorithm.isin(algorithms)]
        return runs.sort_values(
            "algorithm", key=lambda names: names.map(algorithms.index), kind="stable"
        )


@dataclass(frozen=True)
class Measured:
    """The parameters and runs that a report is computed from.

    Args:
        frame: a row for each run, see `reports.collect.collect`.
        root: the folder that contains runs/ and evaluations/.
    """

    params: Params
    frame: pd.DataFrame
    root: Path

    @classmethod
    def read(
        cls, params: Params, root: Path | str = ".", trained: list[Run] | None = None
    ) -> "Measured":
        """Read the result files of training runs.

        Args:
            trained: the training runs; by default those that the tables of the main report need.
        """
        return cls(params, collect(params, root, trained), Path(root))

    @cached_property
    def algorithms(self) -> list[str]:
        """The baselines of Table 1, then RAPID at each H of Tables 1 and 3 (all as names)."""
        tables = self.params.tables
        baselines = [name for name in tables.main.algorithms if not RAPID.matches_name(name)]
        rapids = set(tables.main.algorithms) - set(baselines)
        rapids |= set(map(RAPID.format_name, tables.staleness.H))
        return [*baselines, *sorted(rapids, key=lambda name: (parse(name).H, name))]

    def rows(self, algorithms: list[str]) -> dict[str, str]:
        """Return the labels of a table's rows by algorithm.

        The first rows are the model before training and the algorithm that RL starts from.
        """
        start = self.params.training.start
        by_name = {name: labels.algorithm(name) for name in (BASE, start, *algorithms)}
        return by_name if start == BASE else by_name | {start: f"{by_name[start]} (start)"}

    @cached_property
    def contests(self) -> dict[str, Contest]:
        """The main model's runs on each benchmark."""
        spec, names = self.params.tables.main, list(self.rows(self.algorithms))
        return {
            benchmark: self.contest(benchmark, names, spec.seeds)
            for benchmark in self.params.benchmarks
        }

    @cached_property
    def sweeps(self) -> dict[str, pd.DataFrame]:
        """The runs of Tables 3 and 4 by benchmark: RAPID at several H."""
        names = list(map(RAPID.format_name, self.params.tables.staleness.H))
        return {
            benchmark: contest.runs[contest.runs.algorithm.isin(names)]
            for benchmark, contest in self.contests.items()
        }

    @cached_property
    def families(self) -> list[Contest]:
        """The runs of each model of Table 2."""
        spec = self.params.tables.families
        return [
            self.contest(spec.benchmark, list(self.rows(spec.algorithms)), spec.seeds, model)
            for model in spec.models
        ]

    def contest(
        self, benchmark: str, algorithms: list[str], seeds: list[int], family: str | None = None
    ) -> Contest:
        """Return the runs of these algorithms.

        Args:
            family: name of a model in Table 2 or of a study; by default the main model.
        """
        frame, model = self.frame, family or self.params.tables.main.model
        training = self.params.training
        # The run from which all others start belongs to them, whatever their seeds.
        is_start = (frame.algorithm == training.start) & (frame.seed == training.start_seed)
        rows = (frame.benchmark == benchmark) & (frame.model == model)
        rows &= frame.seed.isin(seeds) | is_start
        runs = frame[rows & frame.algorithm.isin(algorithms)]
        return Contest(benchmark, model, runs, algorithms, self.problems[benchmark], bool(family))

    @cached_property
    def problems(self) -> dict[str, ProblemSource]:
        """The source of the problems of each benchmark."""
        return problem_sources(self.params, self.root)

    def label(self, benchmark: str) -> str:
        """Return a benchmark with the kind of its problems, such as "MBPP+ (made)"."""
        return self.problems[benchmark].label

    @cached_property
    def manifests(self) -> dict[str, JobManifest]:
        """The manifests of distillations, training runs and evaluations by path."""
        trained = self.frame[self.frame.algorithm != BASE]
        imitated = set(self.frame[self.frame.algorithm == SFT.name].benchmark)
        distilled = [
            place(f"distilled/{name}")
            for place in self.places
            for name in self.params.benchmarks
            if name in imitated
        ]
        return read_manifests(self.root, [*distilled, *trained.folder, *self.frame.evaluation])

    @property
    def places(self) -> list[Callable[[str], str]]:
        """A function for each folder of results: from a job's name it returns the job's folder."""
        return [build_plan(self.params, self.root).get_folder]
