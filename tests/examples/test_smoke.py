"""Every example runs with --smoke and prints what its head promises."""

import os
import re
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.examples.heads import EXAMPLES, FOLDER
from tests.subprocesses import python
from tests.training.test_processes import fork_processes
from tests.training.test_vllm import NOT_COMPILED


@pytest.fixture(autouse=True)
def example_surroundings(tmp_path, monkeypatch):
    """An empty folder to run in, and what Python sets for a script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [])
    torch.set_num_threads(1)


def run_here(name: str, *options: str) -> dict:
    """Run an example in this process, and return its names."""
    sys.argv = [name, "--smoke", *options]
    return runpy.run_path(str(EXAMPLES[name].path), run_name="__main__")


# Examples that need processes of their own; the tests of these names run them.
OWN_PROCESSES = {"vllm_colocate.py", "four_gpus.py"}


@pytest.mark.parametrize(
    "arguments",
    [
        *([name] for name in sorted({*EXAMPLES} - OWN_PROCESSES)),
        ["grpo_then_rapid.py", "--rapid"],
        ["lean_proofs.py", "--dataset", "cat-searcher/minif2f-lean4"],
    ],
    ids=" ".join,
)
def test_example_learns_and_prints_what_its_head_promises(arguments, capsys):
    names = run_here(*arguments)
    output = capsys.readouterr().out
    trainer = names["trainer"]
    promised = output.replace("RapidTrainer", "GRPOTrainer")  # of grpo_then_rapid.py --rapid
    assert not EXAMPLES[arguments[0]].find_missing_lines(promised)
    history = [row for row in trainer.state.log_history if "reward" in row]
    assert trainer.state.global_step == 6
    assert max(row["grad_norm"] for row in history) > 0
    assert max(row["reward"] or 0 for row in history) > 0
    expected_class = "GRPOTrainer" if arguments == ["grpo_then_rapid.py"] else "RapidTrainer"
    assert type(trainer).__name__ == expected_class
    assert Path(trainer.args.output_dir).is_relative_to("output")
    assert [*Path(trainer.args.output_dir).glob("*.safetensors")]


def test_logged_logps_are_those_of_the_behaviour_policy(capsys):
    names = run_here("logged_completions.py")
    assert "mean importance weight: 1.00 in the first step" in capsys.readouterr().out
    logged = [
        (ids, logps)
        for row in names["group_by_prompt"].values()
        for ids, logps in zip(row["completion_ids"], row["logprobs"], strict=True)
    ]
    _, batch, _ = names["trainer"].last_pass
    columns = batch["completion_ids"], batch["behavior_logp"], batch["completion_mask"].bool()
    for ids, logps, mask in zip(*columns, strict=True):
        candidates = [
            logged_logps for tokens, logged_logps in logged if tokens == ids[mask].tolist()
        ]
        assert any(logps[mask].tolist() == pytest.approx(each, abs=1e-6) for each in candidates)


@pytest.mark.slow
def test_example_with_vllm_prints_what_its_head_promises(tmp_path):
    pytest.importorskip("vllm")
    example = EXAMPLES["vllm_colocate.py"]
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "PYTHONPATH": str(ROOT), **NOT_COMPILED}
    process = python(example.path, "--smoke", "--output", tmp_path / "output", **variables)
    assert not example.find_missing_lines(process.stdout)


def test_example_with_vllm_says_that_vllm_is_missing():
    """These tests keep TRL from importing vLLM."""
    with pytest.raises(ImportError, match=r"vLLM is not available"):
        run_here("vllm_colocate.py")


def run_and_write_output(folder: Path) -> None:
    with open(folder / f"{os.environ['RANK']}.txt", "w") as file, redirect_stdout(file):
        run_here("four_gpus.py")


def test_example_in_two_processes_prints_what_its_head_promises(tmp_path):
    fork_processes(2, run_and_write_output, tmp_path)
    first, second = ((tmp_path / f"{rank}.txt").read_text() for rank in range(2))
    assert "processes: 2 (MULTI_CPU)" in first
    promised = first.replace("MULTI_CPU", "DEEPSPEED")
    assert not EXAMPLES["four_gpus.py"].find_missing_lines(promised)
    assert "processes" not in second and "mean reward" not in second


@pytest.mark.slow
def test_launch_command_of_head_runs_on_two_cpus(tmp_path):
    example = EXAMPLES["four_gpus.py"]
    program, *options = example.run_command.replace("_processes 4", "_processes 2").split()
    assert program == "accelerate"
    assert options[-1] == example.path.name
    process = python(
        *("-m", "accelerate.commands.launch", "--main_process_port", 0, *options[1:-1]),
        *(example.path, "--smoke", "--output", tmp_path / "output"),
        DS_ACCELERATOR="cpu",
    )
    assert not example.find_missing_lines(process.stdout)
    assert re.search(r"^processes: 2 ", process.stdout, re.MULTILINE)
