"""Tables of hyperparameters and versions, which come from manifests."""

import json
import re

from rapid.config.params import load
from reports.report_data import ReportData
from reports.tables import setup
from tests.reports.conftest import make_run


def build_tables(params, runs):
    data = ReportData.read(params, runs.root)
    return setup.build_sft_table(data), setup.build_rl_table(data), setup.build_versions_table(data)


def cells_by_label(params, runs):
    """Return the cells of MATH by row label, over the three tables."""
    sft, rl, versions = build_tables(params, runs)
    cells = {row.label: row.cells[0][-1] for table in (versions, rl) for row in table.rows}
    return cells | {f"sft {row.label}": row.cells[0][-1] for row in sft.rows}


def edit_manifest(runs, run, **changes):
    """Change fields of a manifest, or of its spec if it has a field of that name."""
    path = runs.root / run.folder / "manifest.json"
    document = json.loads(path.read_text())
    for name, change in changes.items():
        fields = document["spec"] if name in document["spec"] else document
        fields[name] = fields[name] | change if isinstance(change, dict) else change
    path.write_text(json.dumps(document))


def test_values_come_from_manifests_and_not_from_parameters(params, runs):
    runs.write_manifest(params, make_run("grpo"))
    changed = {"training": {"learning_rate": 0.125}, "objective": {"beta": 0.75}}
    edit_manifest(runs, make_run("grpo"), versions={"torch": "9.9"}, **changed)
    cells = cells_by_label(params, runs)
    assert cells["Learning rate"].text == "0.125"
    assert cells["GRPO: KL coefficient"].text == "0.75"
    assert cells["torch"].text == "9.9"
    assert (
        cells["GRPO: KL coefficient"].sources[0].path == f"{make_run('grpo').folder}/manifest.json"
    )


def test_null_is_shown_as_a_value(params, runs):
    for seed in (0, 1):
        runs.write_manifest(params, make_run("dapo", seed))
    edit_manifest(runs, make_run("dapo", 0), objective={"epsilon_high": None})
    assert cells_by_label(params, runs)["DAPO: clip above"].text == "none or 0.28"
    edit_manifest(runs, make_run("dapo", 1), objective={"epsilon_high": None})
    assert cells_by_label(params, runs)["DAPO: clip above"].text == "none"


def test_settings_are_those_of_their_algorithm(params, runs):
    for name in ("sft", "pg", "rapid-H4", "rapid-H2"):
        runs.write_manifest(params, make_run(name))
    edit_manifest(runs, make_run("sft"), compute={"threads": 64})
    cells = cells_by_label(params, runs)
    assert cells["RAPID: H"].text == "2 or 4"
    assert cells["GRPO: KL coefficient"].text == "—"
    assert cells["sft Epochs"].text == f"{params.sft.epochs}"
    assert cells["Epochs"].text == f"{params.training.epochs}"
    threads = (cells["sft Threads"].text, cells["Threads"].text)
    assert threads == ("64", f"{params.compute.threads}")


def test_only_trained_algorithms_have_rows(values, runs):
    values["tables"]["main"]["algorithms"] = ["sft", "pg", "naive-grpo", "dapo"]
    values["studies"] = None
    algorithms = {
        name.partition(":")[0] for name in cells_by_label(load(values), runs) if ": " in name
    }
    assert algorithms == {"naive GRPO", "DAPO", "RAPID"}


def test_cell_names_at_most_twelve_of_its_runs(params, runs):
    runs.write_all(params)
    cells = cells_by_label(params, runs)
    assert cells["Threads"].detail == "In 12 manifests."  # six algorithms, two seeds
    assert re.fullmatch(r"In \d+ manifests, of which 12 are named\.", cells["torch"].detail)
    assert [len(cells[name].sources) for name in ("Threads", "torch")] == [12, 12]


def test_start_reuse_and_made_demonstrations_are_named(params, values, runs):
    default_cells = cells_by_label(params, runs)
    values["training"] |= {"start": "sft", "reuse": 2}
    values["sft"]["demonstrations"] = 8
    params = load(values)
    runs.write_manifest(params, make_run("pg"))
    cells = cells_by_label(params, runs)
    assert cells["Starts from"].text == "sft"
    assert cells["Uses of each completion"].text == "2"
    added = {"Starts from", "Uses of each completion", "sft Generated demonstrations"}
    assert cells.keys() - default_cells.keys() >= added
    assert "sft Teacher model" in default_cells.keys() - cells.keys()


def test_runs_that_differ_show_every_value(params, runs):
    for seed in (0, 1):
        runs.write_manifest(params, make_run("pg", seed))
    edit_manifest(
        runs, make_run("pg", 1), compute={"threads": 64}, hardware="another", timeout="long"
    )
    cells = cells_by_label(params, runs)
    assert cells["Threads"].text == f"{params.compute.threads} or 64"
    assert cells["Time limit of a verdict (seconds)"].text.endswith(" or long")
    notes = " ".join(build_tables(params, runs)[2].notes)
    assert "a test processor, 2 cores; another. Runtimes on different hardware" in notes


def test_cells_name_missing_manifests(params, runs):
    sft, rl, versions = build_tables(params, runs)
    assert all(
        cell.text == "—" and cell.reason for table in (sft, rl) for cell in table.iterate_cells()
    )
    assert versions.rows == []
    assert versions.notes == [
        "Read from the manifests of 0 distillations, 0 training runs and 0 evaluations."
    ]


def test_teacher_comes_from_the_manifest_of_the_distillation(params, runs):
    path = runs.root / "distilled/math/manifest.json"
    path.parent.mkdir(parents=True)
    spec = {"benchmark": "math", "teacher": "someone", "samples": 5, "temperature": 0.7}
    runs.add_to_manifest(path, stage="distill", spec=spec)
    cells = cells_by_label(params, runs)
    assert cells["sft Teacher model"].text == "someone"
    assert cells["sft Top-p"].text == "—"
