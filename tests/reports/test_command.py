"""`python -m reports`: inputs, outputs, messages and exit codes."""

import io
import json
import re
import runpy
import sys

import pytest
import yaml

from rapid.config import specs
from rapid.config.params import load
from rapid.freshness import Job, examine_jobs
from reports.__main__ import main
from reports.plots import style
from tests.reports.conftest import SVG


@pytest.fixture
def config(values, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)


def test_later_configuration_overrides_earlier(config, tmp_path, capsys):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("tables: {main: {model: tiny-llama}}")
    assert main(["--config", config, str(overlay), "--root", str(tmp_path), "--text"]) == 0
    printed = capsys.readouterr()
    assert "algorithms on tiny-llama." in printed.out
    assert printed.err == ""  # nothing was written


@pytest.mark.parametrize("complete", [True, False])
def test_output_never_contains_nan_or_none(params, config, runs, tmp_path, capsys, complete):
    if complete:
        runs.write_all(params)
    output = tmp_path / "tables.tex"
    arguments = ["--config", config, "--root", str(tmp_path), "--output", str(output), "--text"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    for text in (output.read_text(), printed.out):
        assert "nan" not in text.lower()
        assert "None" not in text
    # The widest row is a claim with its problems, model and metric.
    assert max(map(len, printed.out.splitlines())) <= 84
    trained = len(specs.list_table_runs(params))
    evaluated = len(specs.add_base_runs(params, specs.list_table_runs(params)))
    counts = [f"{total if complete else 0} of {total}" for total in (evaluated, trained)]
    assert f"4 files from {counts[0]} evaluations and {counts[1]} tr" in printed.err


def test_results_of_other_parameters_are_named(values, params, runs, tmp_path, capsys):
    for run in specs.list_table_runs(params):
        runs.write_manifest(params, run)  # of a training job that has written no results yet
    options = ["--root", str(tmp_path), "--text"]
    assert main(["--config", json.dumps(values), *options]) == 0
    assert capsys.readouterr().err == ""
    changed = values | {"rapid": values["rapid"] | {"eta": 7.0}}
    assert main(["--config", json.dumps(changed), *options]) == 0
    err = capsys.readouterr().err
    folder = "runs/mbpp_plus/tiny_qwen/rapid-H4/seed0"
    assert f"such as {folder}: objective.eta: 2.0 is now 7.0. To repeat" in err
    assert err.count("\n") == 1 and "run snakemake" in err


@pytest.mark.parametrize(
    ("sft", "count", "difference"),
    [
        (
            {"demonstrations": 0, "temperature": 0.25},
            2,
            "models/teacher: pretraining.learning_rate: 0.003 is now 0.125",
        ),
        (
            {"demonstrations": 100, "error_rate": 0.5},
            1,
            "distilled/math: error_rate: 0.0 is now 0.5",
        ),
    ],
)
def test_other_demonstrations_of_sft_are_named(
    values, runs, tmp_path, capsys, sft, count, difference
):
    """A teacher's completions, or generated demonstrations, which need no teacher."""
    values["sft"] |= {"demonstrations": sft["demonstrations"]}
    params = load(values)
    for name, spec in (
        ("distilled/math", specs.build_distill_spec(params, "math")),
        ("models/teacher", specs.build_model_spec(params, "teacher")),
    ):
        manifest = tmp_path / name / "manifest.json"
        runs.add_to_manifest(manifest, spec=spec.model_dump(mode="json"))
    options = ["--root", str(tmp_path), "--text"]
    assert main(["--config", json.dumps(values), *options]) == 0
    assert capsys.readouterr().err == ""
    values["sft"] |= sft
    values["pretraining"] |= {"learning_rate": 0.125}
    assert main(["--config", json.dumps(values), *options]) == 0
    err = capsys.readouterr().err
    assert f"warning: {count} of the jobs" in err and f"such as {difference}. To repeat" in err


def test_a_part_of_the_report_does_not_replace_that_of_the_pipeline(
    params, values, tmp_path, monkeypatch
):
    """Its other files may be older, so the pipeline makes the report again."""
    monkeypatch.setattr(style, "render", lambda figure, kinds, page: dict.fromkeys(kinds, SVG))
    folder = tmp_path / "reports"
    job = Job("report", str(folder), specs.build_report_spec(params))
    names = {"--output": "tables.tex", "--html": "report.html", "--figures": "figures"}
    options = [text for option, name in names.items() for text in (option, f"{folder}/{name}")]
    arguments = ["--config", json.dumps(values), "--root", str(tmp_path)]
    assert main([*arguments, *options]) == 0
    assert examine_jobs([job]).current == [job]
    for _ in range(2):
        assert main([*arguments, *options[:2]]) == 0
        reason = f"only: ['{folder}/tables.tex'] is now None"
        assert examine_jobs([job]).stale[job].endswith(reason)


def test_files_of_tables_name_the_experiment(values, tmp_path):
    output = tmp_path / "out" / "tables.tex"
    arguments = ["--root", str(tmp_path), "--output", str(output)]
    for name, count in (("mine", 1), (None, 0)):
        assert main(["--config", json.dumps(values | {"name": name}), *arguments]) == 0
        for path, line in (
            (output, "% Experiment: mine"), (output.with_suffix(".txt"), "Experiment: mine"),
            (output.with_name("appendix.tex"), "% Experiment: mine"),
        ):  # fmt: skip
            assert path.read_text().splitlines().count(line) == count, path


def test_html_and_figures_are_written_to_the_given_paths(params, config, runs, tmp_path):
    runs.write_all(params)
    html, figures = tmp_path / "out" / "report.html", tmp_path / "figures"
    arguments = ["--config", config, "--root", str(tmp_path)]
    assert main([*arguments, "--html", str(html), "--figures", str(figures)]) == 0
    assert html.read_text().count("data:image/svg+xml;base64,") == 7
    kinds = sorted((path.suffix, path.read_bytes()[:4]) for path in figures.iterdir())
    assert kinds == [(".pdf", b"%PDF")] * 7 + [(".png", b"\x89PNG")] * 7
    manifest = json.loads((html.parent / "manifest.json").read_text())
    assert str(html) in manifest["outputs"]
    trained = specs.list_table_runs(params)
    read_paths = {
        f"{run.evaluation}/evaluation.json" for run in specs.add_base_runs(params, trained)
    }
    names = ("summary.json", "steps.jsonl", "token_weights.json")
    read_paths |= {f"{run.folder}/{name}" for run in trained for name in names}
    assert manifest["inputs"].keys() == {f"{tmp_path}/{name}" for name in read_paths}
    assert not (html.parent / "tables.tex").exists()


@pytest.mark.parametrize(
    ("option", "kinds", "suffixes"),
    [("--html", {"svg"}, {".json", ""}), ("--figures", {"pdf", "png"}, {".json", ".pdf", ".png"})],
)
def test_only_requested_figures_are_drawn(config, tmp_path, monkeypatch, option, kinds, suffixes):
    drawn_kinds, out = set(), tmp_path / "out"

    def render(figure, kinds, page):
        drawn_kinds.update(kinds)
        return dict.fromkeys(kinds, b'<svg width="72pt" height="36pt" viewBox="0 0 72 36"/>')

    monkeypatch.setattr(style, "render", render)
    target = out / "page" if option == "--html" else out
    assert main(["--config", config, "--root", str(tmp_path), option, str(target)]) == 0
    assert (drawn_kinds, {path.suffix for path in out.iterdir()}) == (kinds, suffixes)


def test_parameters_from_a_file_and_from_json_give_the_same_tables(
    params, values, config, runs, tmp_path
):
    runs.write_all(params)
    outputs = []
    for parameters in (config, json.dumps(values)):
        output = tmp_path / str(len(outputs)) / "t.tex"
        assert main(["--config", parameters, "--root", str(tmp_path), "--output", str(output)]) == 0
        outputs.append([output.with_name(name).read_text() for name in ("t.tex", "appendix.tex")])
    texts, texts_by_json = outputs
    assert texts == texts_by_json
    assert [text.count(r"\caption{") for text in texts] == [4, 7]
    assert len(set(re.findall(r"\\label{(rapid:.*?)}", "".join(texts)))) == 11


@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        ("no-such.yaml", [], "no-such.yaml: cannot be read: No such file"),
        ("{not json", [], "Expecting property name"),
        ("{}", [], "data_seed: is missing"),
        ({}, ["--arena"], "--arena: the parameters have no section arena"),
        # Named parameters share jobs with those of the folder's params.yaml.
        ({"name": "mine"}, [], "params.yaml:1: data_seed: -1 is invalid"),
    ],
)
def test_wrong_parameters_exit_with_2(values, tmp_path, capsys, params, options, message):
    (tmp_path / "params.yaml").write_text("data_seed: -1")
    if not isinstance(params, str):
        params = json.dumps(values | params)
    assert main(["--config", params, "--root", str(tmp_path), "--text", *options]) == 2
    assert message in capsys.readouterr().err


def test_missing_options_are_a_usage_error(config, capsys):
    for arguments, message in (
        (["--config", config], "nothing to do"),
        (["--text"], "--config"),
        (["--config", config, "--output", "paper/appendix.tex"], "a .tex file other than appendix"),
        (["--config", config, "--output", "tables.txt"], "--output tables.txt: name a .tex file"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        assert message in capsys.readouterr().err


def test_tuning_module_runs_as_a_command(monkeypatch, capsys):
    module = "reports.tuning"
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(module, run_name="__main__")
    assert stop.value.code == 0
    assert f"usage: python -m {module}" in capsys.readouterr().out


def test_terminal_without_utf_8_gets_question_marks(config, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdout", out := io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert main(["--config", config, "--root", str(tmp_path), "--text"]) == 0
    out.flush()
    assert b"? [a]  " in out.buffer.getvalue()
