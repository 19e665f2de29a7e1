"""Hyperparameters and versions are what the manifests say."""

import json
import re

from rapid.config.params import load
from reports.measured import Measured
from reports.tables import setup
from tests.reports.conftest import make_run as run


def tables(params, runs):
    measured = Measured.read(params, runs.root)
    return setup.imitation(measured), setup.rl(measured), setup.versions(measured)


def cells(params, runs):
    """Row label -> the cell of MATH, over the three tables; versions by package."""
    sft, rl, versions = tables(params, runs)
    found = {row.label: row.cells[0][-1] for table in (versions, rl) for row in table.rows}
    return found | {f"sft {row.label}": row.cells[0][-1] for row in sft.rows}


def edit(runs, run, **changes):
    """Change a manifest: its fields, and those of its spec by their names."""
    path = runs.root / run.folder / "manifest.json"
    document = json.loads(path.read_text())
    for name, change in changes.items():
        where = document["spec"] if name in document["spec"] else document
        where[name] = where[name] | change if isinstance(change, dict) else change
    path.write_text(json.dumps(document))


def test_values_are_the_manifests_and_not_the_parameters(params, runs):
    runs.write_manifest(params, run("grpo"))
    changed = {"training": {"learning_rate": 0.125}, "objective": {"beta": 0.75}}
    edit(runs, run("grpo"), versions={"torch": "9.9"}, **changed)
    found = cells(params, runs)
    assert found["Learning rate"].text == "0.125"
    assert found["GRPO: KL coefficient"].text == "0.75"
    assert found["torch"].text == "9.9"
    assert found["GRPO: KL coefficient"].sources[0].path == f"{run('grpo').folder}/manifest.json"


def test_a_null_is_a_value(params, runs):
    for seed in (0, 1):
        runs.write_manifest(params, run("dapo", seed))
    edit(runs, run("dapo", 0), objective={"epsilon_high": None})
    assert cells(params, runs)["DAPO: clip above"].text == "none or 0.28"
    edit(runs, run("dapo", 1), objective={"epsilon_high": None})
    assert cells(params, runs)["DAPO: clip above"].text == "none"


def test_settings_are_of_their_algorithm(params, runs):
    for name in ("sft", "pg", "rapid-H4", "rapid-H2"):
        runs.write_manifest(params, run(name))
    edit(runs, run("sft"), compute={"threads": 64})
    found = cells(params, runs)
    assert found["RAPID: H"].text == "2 or 4"
    assert found["GRPO: KL coefficient"].text == "—"
    assert found["sft Epochs"].text == f"{params.sft.epochs}"
    assert found["Epochs"].text == f"{params.training.epochs}"
    threads = (found["sft Threads"].text, found["Threads"].text)
    assert threads == ("64", f"{params.compute.threads}")


def test_only_algorithms_that_are_run_have_rows(values, runs):
    values["tables"]["main"]["algorithms"] = ["sft", "pg", "naive-grpo", "dapo"]
    values["studies"] = None
    named = {name.partition(":")[0] for name in cells(load(values), runs) if ": " in name}
    assert named == {"naive GRPO", "DAPO", "RAPID"}


def test_a_cell_names_twelve_of_its_runs(params, runs):
    runs.write_all(params)
    found = cells(params, runs)
    assert found["Threads"].detail == "In 12 manifests."  # six algorithms, two seeds
    assert re.fullmatch(r"In \d+ manifests, of which 12 are named\.", found["torch"].detail)
    assert [len(found[name].sources) for name in ("Threads", "torch")] == [12, 12]


def test_a_start_and_made_demonstrations_are_named(params, values, runs):
    usual = cells(params, runs)
    values["training"]["start"] = "sft"
    values["sft"]["demonstrations"] = 8
    params = load(values)
    runs.write_manifest(params, run("pg"))
    found = cells(params, runs)
    assert found["Starts from"].text == "sft"
    assert found.keys() - usual.keys() >= {"Starts from", "sft Made demonstrations"}
    assert "sft Teacher model" in usual.keys() - found.keys()


def test_runs_that_differ_show_every_value(params, runs):
    for seed in (0, 1):
        runs.write_manifest(params, run("pg", seed))
    edit(runs, run("pg", 1), compute={"threads": 64}, hardware="another", timeout="long")
    found = cells(params, runs)
    assert found["Threads"].text == f"{params.compute.threads} or 64"
    assert found["Seconds a verdict may take"].text.endswith(" or long")
    notes = " ".join(tables(params, runs)[2].notes)
    assert "a test processor, 2 cores; another. Runtimes on different hardware" in notes


def test_without_manifests_every_cell_says_so(params, runs):
    sft, rl, versions = tables(params, runs)
    assert all(cell.text == "—" and cell.reason for table in (sft, rl) for cell in table.cells())
    assert versions.rows == []
    assert versions.notes == [
        "From the manifests of 0 distillations, 0 training runs and 0 evaluations."
    ]


def test_the_teacher_is_in_the_distillations_manifest(params, runs):
    path = runs.root / "distilled/math/manifest.json"
    path.parent.mkdir(parents=True)
    spec = {"benchmark": "math", "teacher": "someone", "samples": 5, "temperature": 0.7}
    runs.seal(path, stage="distill", spec=spec)
    found = cells(params, runs)
    assert found["sft Teacher model"].text == "someone"
    assert found["sft Top-p"].text == "—"
