"""`rapid plan`: its output, and errors for unusable input."""

import re
import subprocess
import sys

import pytest
import yaml

from rapid.cli import run
from tests.cost.conftest import make_spec, write_run


@pytest.fixture
def config(values, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(values))
    return ["--configfile", str(path)]


def test_plan_from_runs_uses_their_rates_unless_options_override_them(
    config, params, tmp_path, capsys
):
    for name in ("sft", "pg", "grpo", "rapid-H4"):
        write_run(tmp_path / "runs", params, make_spec(params, name))
    options = ["--cores", "2", "--signal", "0.2", "--verdict-seconds", "math=9"]
    assert run(["plan", *config, "--calibrate", str(tmp_path / "runs"), *options]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^math +tiny-qwen2 +rapid-H16 +3 ", text, re.MULTILINE)
    assert "251 jobs" in text
    assert "on 2 core(s)" in text
    assert "measured in 4 runs on a machine" in text
    assert re.search(r"models without runs, .* scaled by size: .*tiny-gemma3", text)
    assert "20% of groups with a signal, 60% with a reward" in text  # the runs showed 60% and 80%
    assert "math 9" in text
    assert "the largest micro-batch is unknown: set --memory" in text


@pytest.mark.parametrize("command", [["plan", "--gpu", "a100"], ["preflight"]])
def test_an_overlay_alone_is_read_over_params_yaml(tmp_path, capsys, command):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("rapid: {eta: -1}\n")
    assert run([*command, "--configfile", str(overlay)]) == 2
    message = capsys.readouterr().err.splitlines()
    assert message == [
        f"rapid {command[0]}: {overlay}:1: rapid.eta: -1 is invalid: must be greater than 0"
    ]


def test_plan_for_a_gpu_prints_its_assumptions(config, capsys):
    options = ["--gpu", "a6000", "--gpus", "4", "--completion-length", "0.5", "--signal", "0.3"]
    assert run(["plan", *config, *options, "--prompt-length", "77"]) == 0
    text = capsys.readouterr().out
    assert "completions of 40 tokens (limit 80; --length-spread 1.00) after prompts of 77" in text
    assert "30% of groups with a signal, 65% with a reward" in text
    assert "published 768 GB/s" in text
    assert "on 4 GPU(s)" in text
    assert re.search(r"completions that are correct: .*\bmath 50%", text)
    assert "Will not work as planned" not in text
    assert run(["plan", *config, *options, "--gpus", "9999", "--report", "studies"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^math +tiny-qwen2 +rapid-H16,eta=1 +3 ", text, re.MULTILINE)
    # More GPUs do not make the longest chain shorter.
    chain = re.search("chain of jobs, each of which needs the one before it, takes (.*)", text)[1]
    assert f"on 9999 GPU(s): at least {chain} of wall-clock time" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--calibrate", "nowhere"],
            "no finished run, with recorded times, of the models and benchmarks in params.yaml",
        ),
        (["--gpu", "abacus"], "its rates are not known"),
        (["--gpu", "a6000", "--report", "arena"], "the parameters have no section arena"),
        (["--gpu", "a6000", "--config", "nobody=x.json"], "no such model"),
        (["--gpu", "a6000", "--config", "teacher=nowhere.json"], "nowhere.json"),
        (["--gpu", "a6000", "--verdict-seconds", "gsm8k=1"], "no such benchmark"),
        (["--gpu", "a6000", "--signal", "0.5", "--rewarded", "0.2"], "raise --rewarded"),
    ],
)
def test_unusable_input_is_refused_with_status_2(config, capsys, options, message):
    assert run(["plan", *config, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--signal", "1.5"], ["--gpus", "0"], ["--verdict-seconds", "math"],
                ["--length-spread", "-1"], ["--gpu", "a6000", "--calibrate", "runs"]],
)  # fmt: skip
def test_arguments_out_of_range_are_refused(config, options):
    with pytest.raises(SystemExit) as stop:
        run(["plan", *config, *options])
    assert stop.value.code == 2


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--signal", "0", "0 is not above 0 and at most 1"),
        ("--length-spread", "2", "2 is not from 0 to 1"),
        ("--signal", "half", "invalid share value: 'half'"),
        ("--verdict-seconds", "math=soon", "invalid NAME=VALUE value: 'math=soon'"),
    ],
)
def test_message_on_a_wrong_value_names_what_is_allowed(config, capsys, option, value, problem):
    with pytest.raises(SystemExit):
        run(["plan", *config, option, value])
    assert f"argument {option}: {problem}" in " ".join(capsys.readouterr().err.split())


def test_planning_does_not_import_torch(config):
    code = (
        "import sys; from rapid.cli import run; run(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "plan", *config, "--gpu", "a6000"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
