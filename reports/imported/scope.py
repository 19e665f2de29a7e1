"""Derives the parameters of a report (models, algorithms and seeds of tables) from its runs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import override

from rapid.algorithms import ALGORITHMS, RAPID, SFT
from rapid.algorithms.variant_names import parse_variant_name
from rapid.benchmarks import BENCHMARKS
from rapid.config.params import Params
from rapid.config.params_schema import (
    BASE,
    BenchmarkParams,
    FamilyTable,
    MainTable,
    NameWithoutDots,
    ReportParams,
    Run,
    Section,
    StalenessTable,
    Tables,
    Training,
)
from reports.statistics.pairs import PASS_AT

Rows = Mapping[Run, Mapping[str, Any]]  # run -> its row in `reports.collect.collect_runs`


class PresentationParams(Section):
    """The name and layout of a report: the keys of params.yaml that cannot be derived from runs."""

    name: NameWithoutDots | None = None
    report: ReportParams = ReportParams()


class ImportedParams(Params):
    """The part of params.yaml that reports read. Other fields are not set.

    Models and algorithms may have names that the project does not know.
    """

    sft: Any  # the section of SFT, which `rapid.config.params.load` adds to `Params`

    @override
    def list_algorithms(self, benchmark: str) -> list[str]:
        """Return the algorithms of both tables, which are the same for every benchmark."""
        return [*self.tables.main.algorithms, *self.tables.families.algorithms]

    def list_runs(self) -> list[Run]:
        """Return the runs that the tables show, including the models before training (`BASE`)."""
        main, families = self.tables.main, self.tables.families
        tables = [(name, main.model, main) for name in self.benchmarks]
        tables += [(families.benchmark, model, families) for model in families.models]
        start, start_seed = self.training.start, self.training.start_seed
        with_start_seed = () if start_seed is None else (BASE, start)
        return [
            build_run(benchmark, model, algorithm, seed)
            for benchmark, model, table in tables
            for algorithm in (BASE, *table.algorithms)
            for seed in ([start_seed] if algorithm in with_start_seed else table.seeds)
        ]


def build_run(benchmark: str, model: str, algorithm: str, seed: int) -> Run:
    """Return a `Run` without validation, because models may have any name here."""
    return Run.model_construct(benchmark=benchmark, model=model, algorithm=algorithm, seed=seed)


def derive_params(
    rows: Rows, presentation: PresentationParams, demonstrations: int
) -> ImportedParams:
    """Return the parameters of a report of these runs.

    Table 1 (all algorithms on all benchmarks) has the model with runs on the most benchmarks. If
    several models have equally many, it has the one of these with the most runs. Table 2 has the
    other models, on the benchmark on which they have the most runs.

    Args:
        demonstrations: number of demonstrations generated for SFT; 0 if a teacher model wrote them.
    """
    by_model: dict[str, list[Run]] = {}
    for run in rows:
        by_model.setdefault(run.model, []).append(run)
    counts = {
        name: (len({run.benchmark for run in runs}), len(runs)) for name, runs in by_model.items()
    }
    model = max(counts, key=counts.get)
    main = _list_algorithms_and_seeds(by_model[model])
    family_runs = [run for run in rows if run.model != model]
    benchmarks = Counter(run.benchmark for run in family_runs or rows)
    ((benchmark, _),) = benchmarks.most_common(1)
    family_runs = [run for run in family_runs if run.benchmark == benchmark]
    tables = Tables.model_construct(
        main=MainTable.model_construct(model=model, **main),
        families=FamilyTable.model_construct(
            benchmark=benchmark,
            models=list(dict.fromkeys(run.model for run in family_runs)),
            **_list_algorithms_and_seeds(family_runs),
        ),
        staleness=StalenessTable.model_construct(
            H=[h for name in main["algorithms"] if RAPID.format_name(h := parse_h(name)) == name]
        ),
    )
    starts = (
        (row["start"], int(seed) if math.isfinite(seed := row["start_seed"]) else None)
        for row in rows.values()
        if row["start"] != BASE
    )
    start, start_seed = next(starts, (BASE, None))
    return ImportedParams.model_construct(
        **dict(presentation),
        tables=tables,
        benchmarks={
            name: BenchmarkParams.model_construct(pass_at=_list_ks(rows, name))
            for name in BENCHMARKS
            if any(run.benchmark == name for run in rows)
        },
        training=Training.model_construct(start=start, start_seed=start_seed),
        sft=SFT.parameters.model_construct(demonstrations=demonstrations),
    )


def _list_algorithms_and_seeds(runs: Iterable[Run]) -> dict[str, list]:
    """Return the fields `algorithms` and `seeds` of a table of these runs."""
    names = dict.fromkeys(run.algorithm for run in runs if run.algorithm != BASE)
    return {"algorithms": sort_algorithms(names), "seeds": sorted({run.seed for run in runs})}


def sort_algorithms(names: Iterable[str]) -> list[str]:
    """Return names in the order of tables: the project's algorithms, other names, RAPID by H."""
    registry = list(ALGORITHMS.values())

    def sort_key(name: str) -> tuple:
        positions = (n for n, algorithm in enumerate(registry) if algorithm.matches_name(name))
        position = next(positions, registry.index(RAPID) - 0.5)
        return position, parse_h(name)

    return sorted(names, key=sort_key)


def parse_h(name: str) -> int:
    """Return the H (optimizer steps per inference batch) in the name of an algorithm.

    It is 1 if the algorithm is not one of the project's.
    """
    is_known = any(algorithm.matches_name(name) for algorithm in ALGORITHMS.values())
    return parse_variant_name(name).H if is_known else 1


def _list_ks(rows: Rows, benchmark: str) -> list[int]:
    """Return each k for which a run on this benchmark has pass@k; [1] if no run has any."""
    ks = {
        int(name.removeprefix(PASS_AT))
        for run, row in rows.items()
        for name, value in row.items()
        if run.benchmark == benchmark and name.startswith(PASS_AT) and math.isfinite(value)
    }
    return sorted(ks) or [1]
