"""`python -m reports.tuning`: the record of trials, and the rates that it writes."""

import pandas as pd
import pytest
import yaml

from rapid.artifacts.files import BadInput
from rapid.config.params import load
from rapid.config.params import read as read_params
from rapid.config.specs import BASE, list_arena_runs
from reports.report_data import ReportData
from reports.tuning import (
    COLUMNS,
    collect_trials,
    compute_target_accuracy,
    find_ties,
    main,
    replace_rates,
    score_rates,
    select_rate,
)
from tests.conftest import ROOT
from tests.reports.conftest import make_run

# Problems (of ten) solved with seeds 7 and 8, by rate. PG's means weighted with their neighbours:
# (2 x 5 + 7) / 3 = 5.7, (5 + 2 x 7 + 1) / 4 = 5 and (7 + 2 x 1) / 3 = 3. PG (H=4)'s last is best.
SOLVED = {
    "math": {BASE: [(2, 4)], "pg": [(6, 4), (8, 6), (2, 0)], "pg-H4": [(1, 1), (9, 9), (8, 8)]},
    "mbpp_plus": {BASE: [(1, 1)], "pg": [(5, 5), (8, 10)], "grpo": [(0, 0), (1, 1)]},
}
RATES = {"math": [1e-4, 1e-3, 1e-2], "mbpp_plus": [1e-3, 1e-2]}
EXPERIMENT_TEMPLATE = """arena:
  fields:
    math:
      reach: {}  # of PG
      rates:
        pg: {}
        pg-H2: {}
        pg-H4: {}
    mbpp_plus:
      reach: {}
      rates:
        pg: {}
        grpo: {}
  other:
      reach: 0.99
"""
RATES_BEFORE = ("0.10", "1.0e-5", "1.0e-5", "1.0e-5", "0.10", "1.0e-5", "1.0e-5")
# 0.3 + 0.75 x (0.5 - 0.3), and 0.1 + 0.75 x (0.9 - 0.1)
RATES_AFTER = ("0.45", "1.0e-04", "1.0e-02", "1.0e-02", "0.70", "1.0e-02", "1.0e-02")


@pytest.fixture
def values(values):
    names = {"math": ["pg", "pg-H2", "pg-H4"], "mbpp_plus": ["pg", "grpo"]}
    field = {"seeds": 2, "problems": 4, "snapshots": 1, "reach": 0.1}
    fields = {
        key: field | {"rates": dict.fromkeys(algorithms, 1e-5)} for key, algorithms in names.items()
    }
    fields["math"]["same_rate"] = {"pg-H2": "pg-H4"}
    arena = {"fields": fields, "tuning": {"rates": RATES, "seeds": [7, 8]}}
    return values | {"arena": arena}


def test_trials_decide_the_rates_and_the_accuracy_to_reach(values, runs, monkeypatch, capsys):
    params, lines = load(values), set()
    for benchmark, field in params.arena.fields.items():
        for name, solved_by_rate in SOLVED[benchmark].items():
            rates = [0] if name == BASE else RATES[benchmark]
            for rate, solved_by_seed in zip(rates, solved_by_rate, strict=True):
                for seed, solved in zip((7, 8), solved_by_seed, strict=True):
                    trial = make_run(
                        field.trial_name(name, rate) if rate else BASE, seed, benchmark
                    )
                    runs.write_scores(trial, [8] * solved + [0] * (10 - solved))
                    lines.add(f"{benchmark},{name},{rate:g},{seed},{solved / 10:g}")
    monkeypatch.chdir(runs.root)
    runs.root.joinpath("params.yaml").write_text(yaml.safe_dump(values))
    experiment, record = runs.root / "arena.yaml", runs.root / "trials.csv"
    experiment.write_text(EXPERIMENT_TEMPLATE.format(*RATES_BEFORE))
    arguments = ["--configfile", "params.yaml", "--record", str(record), "--write", str(experiment)]
    assert main(arguments) == 0
    head, *recorded_lines = record.read_text().splitlines()
    assert head == "benchmark,algorithm,learning_rate,seed,accuracy"
    assert len(recorded_lines) == len(lines) and set(recorded_lines) == lines
    assert experiment.read_text() == EXPERIMENT_TEMPLATE.format(*RATES_AFTER)

    damaged = next(runs.root.glob("evaluations/**/manifest.json"))
    manifest_text = damaged.read_text()
    damaged.write_text("{")
    assert main(arguments) == 1
    assert f"reports.tuning: {damaged.relative_to(runs.root)}" in capsys.readouterr().err
    damaged.write_text(manifest_text)

    for trial in runs.root.glob("evaluations/math/*/base/*/evaluation.json"):
        runs.delete(trial)
    record.unlink()
    assert main(arguments) == 1
    assert f"2 of {len(lines)} trials are missing" in capsys.readouterr().err
    assert not record.exists()


def test_parameters_without_a_tuning_are_refused(values, tmp_path, capsys):
    del values["arena"]["tuning"]
    config, record = tmp_path / "params.yaml", str(tmp_path / "trials.csv")
    for text, message in (
        (yaml.safe_dump(values), "have no arena.tuning"),
        ("a: [", "params.yaml:1: "),
    ):
        config.write_text(text)
        with pytest.raises(SystemExit):
            main(["--configfile", str(config), "--record", record, "--write", record])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("means", "smooth"),
    [([0.4], [0.4]), ([0.3, 0.6], [0.4, 0.5]), ([0.3, 0.6, 0.9], [0.4, 0.6, 0.8])],
)
def test_grid_of_any_size_is_smoothed(means, smooth):
    rates = [10.0**-n for n in range(len(means), 0, -1)]
    trials = pd.DataFrame({"learning_rate": rates, "accuracy": means})
    smoothed = score_rates(trials, "smoothed")
    assert dict(smoothed) == pytest.approx(dict(zip(rates, smooth, strict=True)))


def make_record(by_rate: dict[float, list[float]]) -> pd.DataFrame:
    rows = [
        ("math", "pg", rate, seed, accuracy)
        for rate, accuracies in by_rate.items()
        for seed, accuracy in enumerate(accuracies)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


# Means 0.5, 0.6 and 0.2: smoothed 0.533, 0.475 and 0.333.
LOPSIDED = make_record({1e-4: [0.48, 0.5, 0.52], 1e-3: [0.6, 0.5, 0.7], 1e-2: [0.2, 0.1, 0.3]})


@pytest.mark.parametrize(("rule", "rate"), [("smoothed", 1e-4), ("highest", 1e-3)])
def test_rule_decides_which_rate_is_chosen(rule, rate):
    assert select_rate(LOPSIDED, "math", "pg", rule) == rate


def test_rates_that_are_not_significantly_worse_are_ties():
    """The differences from 0.001 are 0.1 ± 0.09, so t = 1.9 of 2 df, and exactly 0.4."""
    assert find_ties(LOPSIDED, 1e-3) == [1e-4]
    assert find_ties(LOPSIDED[LOPSIDED.seed == 0], 1e-3) == [
        1e-4,
        1e-2,
    ]  # a single pair decides nothing


def test_reach_follows_the_rate_of_the_rule():
    base = pd.DataFrame([("math", BASE, 0.0, 0, 0.1)], columns=COLUMNS)
    record = pd.concat([LOPSIDED, base])
    assert compute_target_accuracy(record, "math", 0.75) == pytest.approx(0.1 + 0.75 * 0.4)
    assert compute_target_accuracy(record, "math", 0.5, "highest") == pytest.approx(0.1 + 0.5 * 0.5)


@pytest.mark.parametrize(
    ("rate", "text"), [(1e-4, "1.0e-04"), (1.25e-4, "1.25e-04"), (3.75e-5, "3.75e-05")]
)
def test_written_rates_have_all_their_digits(values, rate, text):
    arena = load(values).arena
    fields = {"mbpp_plus": arena.fields["mbpp_plus"].model_copy(update={"reach": None})}
    arena = arena.model_copy(update={"fields": fields})
    rows = [("mbpp_plus", name, rate, 7, 0.5) for name in ("pg", "grpo")]
    trials = pd.DataFrame(rows, columns=COLUMNS)
    quoted = 'arena:\n  fields:\n    mbpp_plus:\n      rates:\n        "pg": 1\n        grpo: 1\n'
    written = yaml.safe_load(replace_rates(quoted, arena, trials))
    assert written["arena"]["fields"]["mbpp_plus"]["rates"] == {"pg": rate, "grpo": rate}
    assert f'"pg": {text}' in replace_rates(quoted, arena, trials)
    with pytest.raises(BadInput, match="no line `pg: NUMBER`"):
        replace_rates(quoted.replace('"pg": 1', "? pg\n        : 1"), arena, trials)


# Files of experiments -----------------------------------------------------------------------------

ARENAS = ("arena", "arena-real", "arena-minif2f", "arena-rivals")
RECORDED = [name for name in ARENAS if (ROOT / f"experiments/{name}-tuning.csv").exists()]


def load_experiment(*names: str):
    files = ("params.yaml", *(f"experiments/{name}.yaml" for name in names))
    return load(read_params(*(ROOT / file for file in files)))


@pytest.mark.parametrize("name", ARENAS)
def test_tuning_shares_no_test_problems_or_seeds_with_the_arena(name):
    """The tuning reserves the test problems of the arena, and uses different seeds."""
    arena, tuning = load_experiment(name), load_experiment(name, f"{name}-tuning")
    assert arena.data_seed == tuning.data_seed
    for benchmark, field in arena.arena.fields.items():
        assert tuning.benchmarks[benchmark].reserved == arena.benchmarks[benchmark].test
        arena_seeds = {seed for name in field.rates for seed in field.get_seeds(name)}
        assert not arena_seeds & {*tuning.arena.tuning.seeds}
        assert arena.benchmarks[benchmark].train == tuning.benchmarks[benchmark].train
        assert arena.pretraining == tuning.pretraining


@pytest.mark.parametrize("name", RECORDED)
def test_rates_of_the_arena_are_those_of_the_record(name):
    record = pd.read_csv(ROOT / f"experiments/{name}-tuning.csv")
    text = (ROOT / f"experiments/{name}.yaml").read_text()
    assert replace_rates(text, load_experiment(name, f"{name}-tuning").arena, record) == text


def test_a_claim_of_the_real_arena_can_hold_although_one_seed_contradicts_it():
    """The second smallest p of an exact signed-rank test of n seeds is 4 / 2^n.

    Holm's method multiplies it by the number of claims.
    """
    (field,) = load_experiment("arena-real").arena.fields.values()
    assert 4 / 2**field.seeds * len(field.claims) <= 0.05
    assert {claim.expect for claim in field.claims} == {"better"}  # each has one test
    assert field.reach is None  # follows from the test problems


def test_quick_form_of_the_real_arena_has_its_algorithms_and_claims():
    """It needs neither vLLM nor a published model."""
    real, quick = (load_experiment("arena-real", *names) for names in ((), ("arena-real-quick",)))
    fields = [params.arena.fields["math"] for params in (real, quick)]
    assert fields[0].rates == fields[1].rates and fields[0].claims == fields[1].claims
    assert quick.compute.sampler == "transformers" and quick.training.start_seed == 1
    assert not any(hasattr(model, "source") for model in quick.models.values())


def test_run_from_which_all_trials_start_is_recorded_once(values, runs):
    values["training"] |= {"start": "sft", "start_seed": 3}
    params = load(values)
    runs.write_scores(make_run("sft", 3), [8] * 3 + [0] * 7)
    record = collect_trials(ReportData.read(params, runs.root, list_arena_runs(params)))
    starts = record[(record.learning_rate == 0) & (record.benchmark == "math")]
    assert [(row.algorithm, row.seed, row.accuracy) for row in starts.itertuples()] == [
        (BASE, 3, 0.3)
    ]


def test_target_without_a_value_is_not_written(values):
    field = load(values).arena.fields["math"].model_copy(update={"reach": None})
    arena = load(values).arena.model_copy(update={"fields": {"math": field}})
    rows = [("math", "pg", rate, 7, rate) for rate in RATES["math"]]
    rows += [("math", "pg-H4", rate, 7, rate) for rate in RATES["math"]]
    text = EXPERIMENT_TEMPLATE.format(*RATES_BEFORE)
    written = replace_rates(text, arena, pd.DataFrame(rows, columns=COLUMNS))
    assert "reach: 0.10  # of PG" in written and "pg: 1.0e-02" in written
