"""Analyses of two runs of an arena, from end points that are known."""

import math

import numpy as np
import pandas as pd
import pytest

from rapid.artifacts.files import BadFile
from rapid.config.arena import Arena, ArenaField
from reports import analyses
from reports.analyses import EarlierOutcomes, PooledOutcomes
from reports.outcomes import ClusteredOutcomes, FieldOutcomes, Outcome
from reports.report_data import ReportData
from reports.statistics import crossed, times

FIELD = ArenaField(seeds=8, problems=16, snapshots=3, reach=0.5, rates={"pg": 1e-4, "grpo": 1e-4})
SKELETONS = {f"p{number}": "abc"[number % 3] for number in range(12)}


@pytest.fixture
def outcomes() -> dict[str, Outcome]:
    """Return the end points of the latest run: eight seeds and twelve problems."""
    chance, of_name = np.random.default_rng(0), {}
    for name in FIELD.rates:
        scores = pd.DataFrame(chance.random((8, 12)), range(1, 9), [*SKELETONS])
        runs = pd.DataFrame({"seed": scores.index, "pass@1": scores.mean(axis=1)})
        seconds = pd.Series(chance.random(8), scores.index)
        of_name[name] = Outcome(runs, seconds, scores, scores.mean(axis=1).to_frame("mean"))
    return of_name


@pytest.fixture
def pooled(outcomes) -> PooledOutcomes:
    latest = FieldOutcomes("math", FIELD, None)
    vars(latest)["outcomes"] = outcomes
    rows = [
        (name, seed, 10.0 * seed, math.inf if seed == 3 else 1.0 * seed, 0.5, 0.4)
        for name in FIELD.rates
        for seed in range(1, 9)
    ]
    columns = ["algorithm", "seed", "runtime", "seconds", "accuracy", "accuracy_in_time"]
    earlier = EarlierOutcomes("math", FIELD, None, pd.DataFrame(rows, columns=columns))
    return PooledOutcomes(
        "math", FIELD, None, ClusteredOutcomes("math", FIELD, None, latest, SKELETONS), earlier
    )


def test_seconds_are_paired_within_each_run(pooled, outcomes):
    ours, theirs = pooled.pair_seconds("grpo", "pg")
    assert [*ours[:8]] == [*theirs[:8]] == [1, 2, math.inf, 4, 5, 6, 7, 8]
    assert [*ours[8:]] == [*outcomes["grpo"].seconds]
    assert pooled.compare("grpo", "pg", "seconds").value == times.time_ratio(ours, theirs).value


@pytest.mark.parametrize("by", ["accuracy", "accuracy_in_time"])
def test_pooled_difference_is_the_mean_of_the_runs(pooled, by):
    latest = pooled.clustered.compare("grpo", "pg", by).value
    assert pooled.compare("grpo", "pg", by).value == pytest.approx(latest / 2)


def test_problems_add_to_the_error_only_if_they_vary(pooled, outcomes):
    """All problems with the skeleton "a" get easier, which is then the difference's noise."""
    easier = [id for id, skeleton in SKELETONS.items() if skeleton == "a"]
    outcomes["grpo"].accuracy.loc[:, easier] += 1
    over_seeds = PooledOutcomes(
        "math", FIELD, None, pooled.clustered, pooled.earlier, problems_vary=False
    )
    errors = [analysis.compare("grpo", "pg", "accuracy").error for analysis in (over_seeds, pooled)]
    assert errors[1] > 2 * errors[0]
    in_time = [a.compare("grpo", "pg", "accuracy_in_time") for a in (over_seeds, pooled)]
    assert in_time[0].error == in_time[1].error


def test_clustered_error_is_that_of_skeletons(pooled, outcomes):
    matrix = (outcomes["grpo"].accuracy - outcomes["pg"].accuracy).to_numpy()
    expected = crossed.estimate_mean(crossed.merge_clusters(matrix, [*SKELETONS.values()]), (-1, 1))
    result = pooled.clustered.compare("grpo", "pg", "accuracy")
    assert (result.low, result.high) == (expected.low, expected.high)


def test_record_with_another_rate_is_refused(params, runs, tmp_path):
    params = params.model_copy(update={"arena": Arena(fields={"math": FIELD})})
    record = pd.DataFrame(
        {"benchmark": "math", "algorithm": name, "run": "x", "reach": 0.5} for name in FIELD.rates
    )
    record.to_csv(tmp_path / "earlier.csv")
    with pytest.raises(BadFile, match=r"math: only in (this|the earlier) arena was .* run as"):
        analyses.read_field_analyses(
            ReportData(params, pd.DataFrame(), runs.root), tmp_path / "earlier.csv"
        )


def test_record_with_another_computed_target_is_refused(params, runs, tmp_path, monkeypatch):
    field = FIELD.model_copy(update={"reach": None})
    params = params.model_copy(update={"arena": Arena(fields={"math": field})})
    monkeypatch.setattr(FieldOutcomes, "target_accuracy", 0.6)
    record = pd.DataFrame(
        {"benchmark": "math", "algorithm": name, "run": field.run_name(name), "reach": 0.5}
        for name in field.rates
    )
    record.to_csv(tmp_path / "earlier.csv")
    with pytest.raises(BadFile, match=r"math: only in (this|the earlier) arena was .* run as"):
        analyses.read_field_analyses(
            ReportData(params, pd.DataFrame(), runs.root), tmp_path / "earlier.csv"
        )
