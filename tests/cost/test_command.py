"""`rapid plan`: what it prints and what it refuses."""

import itertools
import re
import subprocess
import sys

import pytest
import yaml

from rapid.cli import run
from rapid.config.params import load
from rapid.grading.math.grader import MathGrader
from rapid.grading.verdicts import Verdict
from tests.cost.conftest import Law, spec_of, write_run


@pytest.fixture
def config(values, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(values))
    return ["--configfile", str(path)]


@pytest.fixture
def runs(params, tmp_path):
    for seed in (1, 2):
        for name in ("sft", "pg", "grpo", "rapid-H4"):
            write_run(tmp_path / "runs", params, spec_of(params, name, seed=seed), Law())
    return ["--calibrate", str(tmp_path / "runs")]


def test_a_plan_from_runs_has_a_row_for_each_algorithm_and_what_is_set_counts(config, runs, capsys):
    set = ["--cores", "2", "--signal", "0.2", "--verdict-seconds", "math=9"]
    assert run(["plan", *config, *runs, *set]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^math +tiny-qwen2 +rapid-H16 +3 ", text, re.MULTILINE)
    assert "251 jobs" in text
    assert "on 2 core(s)" in text
    assert "rates of 8 runs on a machine" in text
    assert "20% of groups with a signal" in text  # the runs showed 60%
    assert "math 9" in text


def test_a_plan_for_a_gpu_says_its_assumptions(config, capsys):
    options = ["--gpu", "a6000", "--gpus", "4", "--completion-length", "0.5", "--signal", "0.3"]
    assert run(["plan", *config, *options, "--prompt-length", "77"]) == 0
    text = capsys.readouterr().out
    assert "completions of 40 tokens (limit 80; spread 1.00) after prompts of 77" in text
    assert "30% of groups with a signal, 65% with a reward" in text
    assert "published 768 GB/s" in text
    assert "on 4 GPU(s)" in text


def test_the_check_prints_predicted_measured_and_ratio(config, runs, capsys):
    assert run(["plan", *config, *runs, "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split()[0] == "all"
    assert [line.split()[2] for line in lines[2:-1]] == ["sft", "grpo", "pg", "rapid-H4"]
    assert all(float(line.split()[-2]) == pytest.approx(1, abs=0.1) for line in lines[2:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--calibrate", "nowhere"], "no run with a runtime"),
        (["--gpu", "abacus"], "no published rates"),
        (["--gpu", "a6000", "--check"], "give --calibrate"),
        (["--gpu", "a6000", "--report", "arena"], "the parameters have no section arena"),
        (["--gpu", "a6000", "--config", "nobody=x.json"], "no such model"),
        (["--gpu", "a6000", "--config", "teacher=nowhere.json"], "nowhere.json"),
        (["--gpu", "a6000", "--verdict-seconds", "gsm8k=1"], "no such benchmark"),
    ],
)
def test_what_cannot_be_used_is_refused_with_status_2(config, capsys, options, message):
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


def test_planning_needs_no_torch(config):
    code = (
        "import sys; from rapid.cli import run; run(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "plan", *config, "--gpu", "a6000"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.slow
def test_real_runs_are_predicted(values, toy_model, tmp_path, monkeypatch):
    """How well depends on what else the machine does: on runs by a law see test_fit."""
    from rapid.config.specs import prepare_spec
    from rapid.stages.prepare import prepare
    from rapid.stages.train import train

    # An untrained model solves nothing: every second completion is rewarded.
    rewards = itertools.cycle(Verdict(reward=reward, reason="passed") for reward in (0.0, 1.0))
    monkeypatch.setattr(MathGrader, "grade", lambda *_: next(rewards))
    values["models"]["tiny-qwen2"] = {"source": str(toy_model)}
    values["benchmarks"]["math"] |= {"train": 32, "max_completion_length": 32}
    params = load(values)
    prepare(prepare_spec(params, "math"), tmp_path / "data")
    problems = tmp_path / "data" / "train.jsonl"
    for name in ("pg", "rapid-H4", "grpo", "rapid-H8", "rapid-H2", "naive-grpo"):
        spec = spec_of(params, name)
        train(spec, toy_model, problems, tmp_path / spec.run.folder)

    from rapid.cost.expected import usual
    from rapid.cost.measured import check, read_runs
    from rapid.cost.shapes import shapes

    found = check(read_runs(tmp_path / "runs", params), shapes(params, {}), usual(32))
    assert len(found) == 4  # the others than pg and rapid-H4, which it fits
    assert (found.predicted > 0).all() and (found.measured > 0).all()
