"""`python -m reports --from`: folders of results and CSV files in place of this folder's jobs."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from rapid.artifacts.files import BadFile
from rapid.config.params import load
from reports import imported
from reports.__main__ import main
from reports.imported import table
from reports.plots import learning
from reports.report_data import ReportData
from reports.tables import intervals, results
from tests.reports.conftest import RunFiles, make_run

MADE = ["data", "runs", "evaluations"]


@pytest.fixture
def params(values):
    """Parameters that derived ones equal: baselines first, RAPID by H, and each H in Table 1."""
    main_table = values["tables"]["main"]
    main_table["algorithms"] = [*main_table["algorithms"][:-2], "rapid-H2", "rapid-H4"]
    values["tables"]["families"]["models"] = ["tiny-llama"]
    return load(values)


@pytest.fixture
def folder(params, runs, values) -> Path:
    """A folder with every run of the parameters, and with problems that were prepared."""
    runs.write_all(params)
    for benchmark in params.benchmarks:
        write_problems(runs, benchmark, "problems")
    (runs.root / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return runs.root


def write_problems(runs: RunFiles, benchmark: str, problems: str) -> None:
    """Write the problems of a benchmark, as its job does."""
    for name in ("train.jsonl", "test.jsonl"):
        path = runs.root / "data" / benchmark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(problems)
        spec = {"source": "embedded", "data_seed": 0, "test": 20}
        runs.add_to_manifest(
            path, stage="prepare", spec=spec, rows={"train.jsonl": 48, "test.jsonl": 20}
        )


def write_report(*arguments, out: Path) -> list[str]:
    """Return tables.tex and appendix.tex of a report."""
    assert main([*map(str, arguments), "--output", str(out / "tables.tex")]) == 0
    return [(out / name).read_text() for name in ("tables.tex", "appendix.tex")]


def copy_jobs(folder: Path, to: Path, is_copied=lambda path: True) -> Path:
    """Copy the jobs of a folder whose paths are to be kept."""
    for manifest in folder.glob("*/**/manifest.json"):
        place = manifest.parent.relative_to(folder)
        if place.parts[0] in MADE and is_copied(place.as_posix()):
            shutil.copytree(manifest.parent, to / place)
    return to


def write_csv(folder: Path, params, file: Path, **changes) -> Path:
    """Write the runs of a folder as a CSV."""
    frame = ReportData.read(params, folder).frame
    columns = [name for name in (*table.COLUMNS, "pass@8") if name in frame]
    whole = {"problems": "Int64", "samples": "Int64"}
    frame[columns].astype(whole).assign(**changes).to_csv(file, index=False)
    return file


def test_a_copy_of_a_folder_gives_the_tables_of_the_folder(folder, tmp_path):
    config = folder / "params.yaml"
    expected = write_report("--config", config, "--root", folder, out=tmp_path / "out")
    copied = copy_jobs(folder, tmp_path / "elsewhere/results")
    assert write_report("--config", config, "--from", copied, out=tmp_path / "again") == expected
    tables, _ = write_report("--from", copied, out=tmp_path / "without params")
    assert tables == expected[0]


def test_runs_that_a_folder_lacks_are_missing_as_in_the_folder(folder, tmp_path):
    """Those that only the sources have are counted."""
    copied = copy_jobs(folder, tmp_path / "copy", lambda path: "pg/seed1" not in path)
    config = folder / "params.yaml"
    texts = [
        write_report("--config", config, option, copied, out=tmp_path / option)
        for option in ("--root", "--from")
    ]
    assert texts[0] == texts[1]
    assert "not trained: no summary.json of a finished job" in texts[0][0]


def test_a_csv_of_the_same_runs_has_the_same_accuracies_and_runtimes(folder, params, tmp_path):
    file = write_csv(folder, params, tmp_path / "runs.csv", source="made")
    frames = [
        imported.read_sources([source]).frame.set_index(["benchmark", "model", "algorithm", "seed"])
        for source in (folder, file)
    ]
    columns = ["pass@1", "pass@8", "runtime", "staleness", "problems", "hardware", "label", "H"]
    of_folder, of_file = (frame[columns].sort_index() for frame in frames)
    pd.testing.assert_frame_equal(of_folder, of_file, check_dtype=False)
    texts, texts_of_file = (
        [cell.text for cell in main_table(source).iterate_cells()] for source in (folder, file)
    )
    assert texts == texts_of_file


def main_table(*sources: Path):
    return results.build_main_table(imported.read_sources(sources))


def test_several_sources_are_combined_into_one_report(folder, params, tmp_path):
    """A model before training may be in several folders, with the same scores."""
    first = copy_jobs(folder, tmp_path / "a", lambda path: "rapid" not in path)
    second = copy_jobs(
        folder, tmp_path / "b", lambda path: "rapid" in path or "base" in path or "data" in path
    )
    file = write_csv(folder, params, tmp_path / "all.csv", source="made", algorithm="Ours, v2")
    lines = pd.read_csv(file)
    lines.drop_duplicates(["benchmark", "model", "seed"], keep="last").to_csv(file, index=False)
    data = imported.read_sources([first, second, file])
    *names, ours, _, _ = data.label_rows(data.algorithms).values()
    assert (names, ours) == (["Base", "SFT", "GRPO", "naive GRPO", "PG", "DAPO"], "Ours, v2")
    assert data.frame.no_evaluation_reason.eq("").all()
    assert len(data.manifests) == len(ReportData.read(params, folder).manifests)
    assert "Ours, v2 on MBPP+ (made), seed 0" in learning.figure(data, "step", "", "").missing[0]


def test_a_missing_base_model_has_no_row(write_csv):
    assert [row.label for row in main_table(write_csv({})).rows] == ["PG"]


def test_accuracies_without_scores_are_not_tested_and_have_no_interval(write_csv):
    lines = [
        {"algorithm": name, "seed": seed, "pass@1": share, "runtime": 9}
        for name, share in (("pg", "0.5"), ("rapid-H4", "0.501"))
        for seed in (1, 2)
    ]
    source = write_csv(*lines)
    content = main_table(source)
    assert [row.cells[0][0].mark for row in content.rows] == ["runner-up", "best"]
    assert not any(row.cells[0][0].tied for row in content.rows)
    note = "Accuracies of 4 of 4 runs have no scores by problem: they are not tested."
    assert note in " ".join(content.notes)
    data = imported.read_sources([source])
    cells = list(intervals.build_intervals_table(data).iterate_cells())
    assert {(cell.reason, cell.interval) for cell in cells} == {(intervals.NO_SCORES, "")}
    accuracy, runtime = intervals.build_comparisons_table(data).rows[0].cells[0]
    assert (accuracy.text, accuracy.reason) == (
        "—",
        "no seed has runs of both with scores by problem",
    )
    assert runtime.text == "1.00"


def test_a_cell_with_scores_of_some_runs_only_has_no_interval(folder, write_csv):
    file = write_csv({"model": "tiny_qwen", "seed": 7, "source": "made"})
    cell = main_table(folder, file).rows[4].cells[1][0]
    assert (cell.detail, cell.interval) == ("n = 3 runs.", "")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{}, {"seed": "2"}, {"runtime": "3"}], "gpu.csv:4: math/m/pg/seed1 is in gpu.csv:2 too"),
        (
            [{"source": "made"}, {"seed": "2", "source": "hub"}],
            "gpu.csv:3: source: the problems are 'MATH (hub)', but gpu.csv:2 has 'MATH (made)'; make a report for each",
        ),
        ([{"model": "tiny_qwen", "source": "made", "seed": "0"}], "gpu.csv:2: math/tiny_qwen/pg/seed0 is in FOLDER too"),
        ([{}], "gpu.csv:2: source: the problems are 'MATH (not stated)', but FOLDER has 'MATH (made)' (data_seed 0, train.jsonl "),
    ],
)  # fmt: skip
def test_a_run_in_two_sources_or_with_other_problems_is_rejected(folder, write_csv, lines, message):
    file = write_csv(*lines)
    sources = [folder, file] if "FOLDER" in message else [file]
    with pytest.raises(BadFile) as error:
        imported.read_sources(sources)
    text = str(error.value).replace(str(file), "gpu.csv").replace(f"{folder}", "FOLDER")
    assert text.startswith(message)
    assert len(text.splitlines()) == 1


def test_problems_are_compared_by_their_files_if_these_exist(folder, tmp_path):
    first = copy_jobs(folder, tmp_path / "a", lambda path: "tiny-llama" not in path)
    second = copy_jobs(folder, tmp_path / "b", lambda path: "tiny-llama" in path or "data" in path)
    assert imported.read_sources([first, second]).problems["math"].prepared
    write_problems(RunFiles(second), "mbpp_plus", "other problems")
    with pytest.raises(
        BadFile, match=r"/b: .* 'MBPP\+ \(made\)' \(data_seed 0, train\.jsonl \w+, .*\), but "
    ):
        imported.read_sources([first, second])
    shutil.rmtree(second / "data")
    with pytest.raises(BadFile, match=r"the problems are 'MBPP\+ \(not stated\)', but"):
        imported.read_sources([first, second])


def test_variants_of_a_folder_are_left_out(runs):
    for name in ("pg", "pg,epochs=2", "rapid-H4,unknown=1"):
        runs.write_accuracy(make_run(name), 0.5)
    assert list(imported.read_sources([runs.root]).frame.algorithm) == ["pg"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "has no finished job in runs/ or evaluations/"),
        ("maths/m/pg/seed1", "is not that of a run of this project: benchmark: Input should be"),
        ("math/m/pg/seedx", "is not that of a run of this project: seed: 'x' is not a number"),
    ],
)
def test_a_folder_without_runs_of_this_project_is_refused(tmp_path, place, message):
    if place:
        path = tmp_path / "runs" / place / "manifest.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"spec": {}, "inputs": {}, "outputs": {}}))
    with pytest.raises(BadFile, match=message):
        imported.read_sources([tmp_path])


# The command --------------------------------------------------------------------------------------


def test_config_may_have_only_a_name_and_a_style(write_csv, tmp_path):
    paper = tmp_path / "paper.yaml"
    paper.write_text("name: gpu\nreport: {style: icml, notes: none}")
    source = write_csv({})
    text, _ = write_report("--config", paper, "--from", source, out=tmp_path / "out")
    assert r"\label{gpu:tab:main}" in text
    assert "Hardware" not in text
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert [*manifest["inputs"]] == manifest["spec"]["sources"] == [str(source)]
    paper.write_text("report: {style: iclm}")
    assert main(["--config", str(paper), "--from", str(source), "--text"]) == 2


def test_tables_and_figures_without_values_are_left_out(write_csv, tmp_path, capsys):
    lines = [{"algorithm": "Ours"}, {"algorithm": "rapid-H4", "clip_fraction": "0.1"}]
    source, out = write_csv(*lines, {"model": "other", "benchmark": "mbpp_plus"}), tmp_path / "out"
    arguments = ["--from", str(source), "--html", f"{out}/report.html", "--figures", f"{out}/f"]
    assert main([*arguments, "--output", f"{out}/tables.tex"]) == 0
    assert {path.stem for path in (out / "f").iterdir()} == {"tradeoff", "clipped"}
    left_out = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert len(left_out) == 5
    assert (
        left_out[0]
        == "left out: the figure Learning curves by optimizer step: no run has the file that it is drawn from"
    )
    assert "Package versions" not in (out / "appendix.txt").read_text()
    assert "nan" not in (out / "report.html").read_text().lower().replace("dominan", "")


def test_seeds_with_other_parameters_are_named(folder, tmp_path, capsys):
    """A seed that was run before a parameter was changed stays in the folder."""
    write_report("--from", folder, out=tmp_path / "same")
    assert "warning" not in capsys.readouterr().err
    manifest = next(folder.glob("runs/math/*/pg/seed1/manifest.json"))
    document = json.loads(manifest.read_text())
    document["spec"]["training"]["learning_rate"] = 0.5
    manifest.write_text(json.dumps(document))
    write_report("--from", folder, out=tmp_path / "other")
    error = capsys.readouterr().err
    assert "jobs that had other parameters than the same job with another seed: 1," in error
    assert f"{manifest.parent}: training.learning_rate" in error


def test_runs_that_no_table_has_are_counted(folder, write_csv, tmp_path, capsys):
    source, config = write_csv({"model": "other"}), folder / "params.yaml"
    assert main(["--config", str(config), "--from", str(source), "--text"]) == 0
    printed = capsys.readouterr()
    assert "left out: runs that no table shows: 1, such as math/other/pg/seed1" in printed.err
    assert "no source has this run" in printed.out


def test_invalid_values_exit_with_1(write_csv, capsys):
    source = write_csv({"pass@1": "93.4"}, {"seed": "x"})
    assert main(["--from", str(source), "--text"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"reports: {source}:2: pass@1: '93.4' is invalid: ")
    assert second.startswith(f"{source}:3: seed: 'x' is invalid: ")


@pytest.mark.parametrize("kind", ["--studies", "--arena"])
def test_imported_runs_have_no_report_on_studies_or_the_arena(kind, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--from", "runs.csv", "--text", kind])
    assert stop.value.code == 2
    assert f"leave out {kind}" in capsys.readouterr().err
