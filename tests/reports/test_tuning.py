"""`python -m reports.tuning`: from trials to their record, and to the rates of an experiment."""

import pandas as pd
import pytest
import yaml

from rapid.config.params import load
from rapid.config.params import read as read_params
from rapid.config.specs import BASE
from reports.tuning import main, smooth_accuracies, write_rates
from tests.conftest import ROOT
from tests.reports.conftest import run_of

# Of ten problems those that are solved with seeds 7 and 8, by rate. With its neighbours, of PG:
# (2 x 5 + 7) / 3 = 5.7, (5 + 2 x 7 + 1) / 4 = 5 and (7 + 2 x 1) / 3 = 3; the others' last is best.
SOLVED = {
    "math": {BASE: [(2, 4)], "pg": [(6, 4), (8, 6), (2, 0)], "pg-H4": [(1, 1), (9, 9), (8, 8)]},
    "mbpp_plus": {BASE: [(1, 1)], "pg": [(5, 5), (8, 10)], "grpo": [(0, 0), (1, 1)]},
}
RATES = {"math": [1e-4, 1e-3, 1e-2], "mbpp_plus": [1e-3, 1e-2]}
FILE = """arena:
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
GIVEN = ("0.10", "1.0e-5", "1.0e-5", "1.0e-5", "0.10", "1.0e-5", "1.0e-5")
# 0.3 + 0.75 x (0.5 - 0.3), and 0.1 + 0.75 x (0.9 - 0.1)
CHOSEN = ("0.45", "1.0e-04", "1.0e-02", "1.0e-02", "0.70", "1.0e-02", "1.0e-02")


@pytest.fixture
def values(values):
    names = {"math": ["pg", "pg-H2", "pg-H4"], "mbpp_plus": ["pg", "grpo"]}
    field = {"seeds": 2, "problems": 4, "snapshots": 1, "reach": 0.1}
    fields = {key: field | {"rates": dict.fromkeys(of, 1e-5)} for key, of in names.items()}
    arena = {"borrowed": {2: 4}, "fields": fields, "tuning": {"rates": RATES, "seeds": [7, 8]}}
    return values | {"arena": arena}


def test_trials_decide_rates_and_the_accuracy_to_reach(values, runs, monkeypatch, capsys):
    params, lines = load(values), set()
    for benchmark, field in params.arena.fields.items():
        for name, found in SOLVED[benchmark].items():
            for rate, both in zip([0] if name == BASE else RATES[benchmark], found, strict=True):
                for seed, solved in zip((7, 8), both, strict=True):
                    trial = run_of(field.trial_name(name, rate) if rate else BASE, seed, benchmark)
                    runs.scored(trial, [8] * solved + [0] * (10 - solved))
                    lines.add(f"{benchmark},{name},{rate:g},{seed},{solved / 10:g}")
    monkeypatch.chdir(runs.root)
    runs.root.joinpath("params.yaml").write_text(yaml.safe_dump(values))
    written, record = runs.root / "arena.yaml", runs.root / "trials.csv"
    written.write_text(FILE.format(*GIVEN))
    asked = ["--configfile", "params.yaml", "--record", str(record), "--write", str(written)]
    assert main(asked) == 0
    head, *found = record.read_text().splitlines()
    assert head == "benchmark,algorithm,learning_rate,seed,accuracy"
    assert len(found) == len(lines) and set(found) == lines
    assert written.read_text() == FILE.format(*CHOSEN)

    damaged = next(runs.root.glob("evaluations/**/manifest.json"))
    whole = damaged.read_text()
    damaged.write_text("{")
    assert main(asked) == 1
    assert f"reports.tuning: {damaged.relative_to(runs.root)}" in capsys.readouterr().err
    damaged.write_text(whole)

    for trial in runs.root.glob("evaluations/math/*/base/*/evaluation.json"):
        runs.drop(trial)
    record.unlink()
    assert main(asked) == 1
    assert f"2 of {len(lines)} trials are missing" in capsys.readouterr().err
    assert not record.exists()


def test_parameters_without_a_tuning_are_refused(values, tmp_path, capsys):
    del values["arena"]["tuning"]
    given, record = tmp_path / "params.yaml", str(tmp_path / "trials.csv")
    for text, says in (
        (yaml.safe_dump(values), "have no arena.tuning"),
        ("a: [", "params.yaml:1: "),
    ):
        given.write_text(text)
        with pytest.raises(SystemExit):
            main(["--configfile", str(given), "--record", record, "--write", record])
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("means", "smooth"),
    [([0.4], [0.4]), ([0.3, 0.6], [0.4, 0.5]), ([0.3, 0.6, 0.9], [0.4, 0.6, 0.8])],
)
def test_a_grid_of_any_size_is_smoothed(means, smooth):
    rates = [10.0**-n for n in range(len(means), 0, -1)]
    smoothed = smooth_accuracies(pd.DataFrame({"learning_rate": rates, "accuracy": means}))
    assert dict(smoothed) == pytest.approx(dict(zip(rates, smooth, strict=True)))


# The experiments' files ----------------------------------------------------------------------------

OWN, TUNED = "experiments/arena.yaml", "experiments/arena-tuning.yaml"


def experiment(*overlays: str):
    return load(read_params(*(ROOT / name for name in ("params.yaml", *overlays))))


def test_the_arena_tests_on_nothing_that_rates_were_tuned_on():
    """The tuning sets aside as many test problems as the arena has, and has other seeds."""
    own, tried = experiment(OWN), experiment(OWN, TUNED)
    assert own.data_seed == tried.data_seed
    for benchmark, field in own.arena.fields.items():
        assert tried.benchmarks[benchmark].reserved == own.benchmarks[benchmark].test
        used = {seed for name in field.rates for seed in field.get_seeds(name)}
        assert not used & {*tried.arena.tuning.seeds}
        assert own.benchmarks[benchmark].train == tried.benchmarks[benchmark].train
        assert own.pretraining == tried.pretraining


def test_the_rates_are_those_on_record():
    record, text = pd.read_csv(ROOT / "experiments/arena-tuning.csv"), (ROOT / OWN).read_text()
    assert write_rates(text, experiment(OWN, TUNED).arena, record) == text
