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
from rapid.algorithms.variant_names import parse_variant_name
from rapid.benchmarks.problem_source import ProblemSource
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import BASE, Run
from reports import labels
from reports.collect import collect_runs, read_problem_sources
from reports.manifests import JobManifest, read_manifests

# Names of the supervised algorithms, which train on demonstrations: SFT.
SUPERVISED = tuple(name for name, algorithm in ALGORITHMS.items() if algorithm.is_supervised)
# Algorithms whose runtime is shown but not ranked: the model before training, which has no training
# time, and supervised ones.
UNRANKED_RUNTIME = (BASE, *SUPERVISED)
BASELINE = PG.name  # policy gradient, the preregistered baseline of all comparisons


@dataclass(frozen=True)
class BenchmarkRuns:
    """The runs of several algorithms, in the order of tables, on one benchmark with one model."""

    benchmark: str
    model: str
    frame: pd.DataFrame
    algorithms: list[str]
    problems: ProblemSource
    is_main_model: bool = True  # False for the other models of Table 2 and of studies

    @property
    def label(self) -> str:
        """The benchmark and the kind of its problems: "MBPP+ (made)" if they are generated."""
        return self.problems.label

    @property
    def rapid_algorithms(self) -> list[str]:
        """The algorithms that are RAPID at some H: rapid-H1, rapid-H4, ..."""
        return [name for name in self.algorithms if RAPID.matches_name(name)]

    def select(self, *algorithms: str) -> pd.DataFrame:
        """Return the rows of these algorithms, in their order."""
        runs = self.frame[self.frame.algorithm.isin(algorithms)]
        return runs.sort_values(
            "algorithm", key=lambda names: names.map(algorithms.index), kind="stable"
        )


@dataclass(frozen=True)
class ReportData:
    """The parameters and runs that a report is computed from.

    Args:
        frame: a row for each run, see `reports.collect.collect_runs`.
        root: the folder that contains runs/ and evaluations/.
    """

    params: Params
    frame: pd.DataFrame
    root: Path

    @classmethod
    def read(
        cls, params: Params, root: Path | str = ".", trained: list[Run] | None = None
    ) -> "ReportData":
        """Read the result files of training runs, by default of those that the tables need."""
        return cls(params, collect_runs(params, root, trained), Path(root))

    @cached_property
    def algorithms(self) -> list[str]:
        """The baselines of Table 1, then RAPID at each H of Tables 1 and 3 (all as names)."""
        tables = self.params.tables
        baselines = [name for name in tables.main.algorithms if not RAPID.matches_name(name)]
        rapid_algorithms = set(tables.main.algorithms) - set(baselines)
        rapid_algorithms |= set(map(RAPID.format_name, tables.staleness.H))
        return [
            *baselines,
            *sorted(rapid_algorithms, key=lambda name: (parse_variant_name(name).H, name)),
        ]

    def label_rows(self, algorithms: list[str]) -> dict[str, str]:
        """Return the labels of a table's rows by algorithm.

        The first rows are the model before training and the algorithm that RL starts from.
        """
        start = self.params.training.start
        by_name = {name: labels.algorithm(name) for name in (BASE, start, *algorithms)}
        return by_name if start == BASE else by_name | {start: f"{by_name[start]} (start)"}

    @cached_property
    def runs_by_benchmark(self) -> dict[str, BenchmarkRuns]:
        """The main model's runs on each benchmark."""
        seeds, names = self.params.tables.main.seeds, list(self.label_rows(self.algorithms))
        return {
            benchmark: self.select_runs(benchmark, names, seeds)
            for benchmark in self.params.benchmarks
        }

    @cached_property
    def h_sweeps(self) -> dict[str, pd.DataFrame]:
        """The runs of Tables 3 and 4 by benchmark: RAPID at several H."""
        names = list(map(RAPID.format_name, self.params.tables.staleness.H))
        return {
            benchmark: benchmark_runs.frame[benchmark_runs.frame.algorithm.isin(names)]
            for benchmark, benchmark_runs in self.runs_by_benchmark.items()
        }

    @cached_property
    def family_runs(self) -> list[BenchmarkRuns]:
        """The runs of each model of Table 2 on its benchmark."""
        families = self.params.tables.families
        names = list(self.label_rows(families.algorithms))
        return [
            self.select_runs(families.benchmark, names, families.seeds, model)
            for model in families.models
        ]

    def select_runs(
        self, benchmark: str, algorithms: list[str], seeds: list[int], model: str | None = None
    ) -> BenchmarkRuns:
        """Return the runs of these algorithms with these seeds, by default of the main model."""
        frame, training = self.frame, self.params.training
        is_main_model = not model
        model = model or self.params.tables.main.model
        has_seed = frame.seed.isin(seeds)
        if training.start_seed is not None:
            # Of the algorithm that all others start from, only the run that they start from; of the
            # model before training, only the evaluation with that run's seed.
            is_start = frame.algorithm.isin([BASE, training.start])
            has_seed = has_seed.mask(is_start, frame.seed == training.start_seed)
        rows = (frame.benchmark == benchmark) & (frame.model == model) & has_seed
        runs = frame[rows & frame.algorithm.isin(algorithms)]
        return BenchmarkRuns(
            benchmark, model, runs, algorithms, self.problems[benchmark], is_main_model
        )

    @cached_property
    def problems(self) -> dict[str, ProblemSource]:
        """The source of the problems of each benchmark."""
        return read_problem_sources(self.params, self.root)

    def label_benchmark(self, benchmark: str) -> str:
        """Return the label of a benchmark with the kind of its problems, such as "MBPP+ (made)"."""
        return self.problems[benchmark].label

    @cached_property
    def manifests(self) -> dict[str, JobManifest]:
        """The manifests of distillations, training runs and evaluations by path."""
        trained = self.frame[self.frame.algorithm != BASE]
        with_sft = set(self.frame[self.frame.algorithm == SFT.name].benchmark)
        distilled = [
            locate_job(f"distilled/{name}")
            for locate_job in self.job_locators
            for name in self.params.benchmarks
            if name in with_sft
        ]
        return read_manifests(self.root, [*distilled, *trained.folder, *self.frame.evaluation])

    @property
    def job_locators(self) -> list[Callable[[str], str]]:
        """For each source of results, a function from a job's name to the job's folder.

        Here the only source is `root`. `reports.imported` reads several folders.
        """
        return [build_plan(self.params, self.root).get_folder]
