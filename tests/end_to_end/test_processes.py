"""An RL run and sft in two processes with ZeRO-2, started by the workflow on CPUs."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rapid.resources.leases import list_usable_cores
from tests.checkout import copy_checkout
from tests.subprocesses import ACTIVATED, python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(list_usable_cores()) < 2, reason="two processes want two cores"),
]

OVERLAY = """
name: null
compute: {processes: 2}
benchmarks: {mbpp_plus: {n_step: 8, train: 32}}
tables: {main: {algorithms: [sft, rapid-H4]}}
sft: {micro_batch: 4}
"""
RUNS = {name: f"runs/mbpp_plus/tiny-qwen2/{name}/seed1" for name in ("rapid-H4", "sft")}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    (folder / "two.yaml").write_text(OVERLAY)
    command = ["-m", "snakemake", "--cores", "2", "--nocolor", "--configfile", "params.yaml"]
    command += ["experiments/ci.yaml", "two.yaml", "--"]
    command += [f"{run_folder}/manifest.json" for run_folder in RUNS.values()]
    python(*command, folder=folder, TORCH_EXTENSIONS_DIR=str(folder / "compiled"), **ACTIVATED)
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_a_run_leaves_the_same_files_as_a_run_of_one_process(checkout, name):
    run_folder = RUNS[name]
    folder = checkout / run_folder
    summary = json.loads((folder / "summary.json").read_text())
    manifest = json.loads((folder / "manifest.json").read_text())
    steps = (folder / "steps.jsonl").read_text().splitlines()
    assert summary["status"] == "ok", summary["note"]
    written = {path.as_posix() for path in (checkout / run_folder).rglob("*") if path.is_file()}
    declared = {
        str(checkout / path) for path in [*manifest["outputs"], f"{run_folder}/manifest.json"]
    }
    assert written == declared  # no file of a second process
    assert manifest["spec"]["compute"]["processes"] == 2
    assert len(steps) == summary["optimizer_steps"]


@pytest.mark.parametrize("name", RUNS)
def test_the_saved_model_is_complete_and_its_head_is_tied(checkout, name):
    """DeepSpeed may save the tied head, which then has to equal the embedding."""
    before = load_file(checkout / "models/tiny-qwen2/model.safetensors")
    after = load_file(checkout / RUNS[name] / "model/model.safetensors")
    head = after.pop("lm_head.weight", None)
    assert before.keys() == after.keys()
    assert head is None or torch.equal(head, after["model.embed_tokens.weight"])
    model = AutoModelForCausalLM.from_pretrained(checkout / RUNS[name] / "model")
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_the_saved_weights_are_the_trained_ones(checkout):
    """Only sft is sure to have a gradient; the few completions of RL may all be wrong."""
    before = load_file(checkout / "models/tiny-qwen2/model.safetensors")
    after = load_file(checkout / RUNS["sft"] / "model/model.safetensors")
    assert all(not torch.equal(before[key], after[key]) for key in before)


def test_an_optimizer_step_has_the_completions_of_both_processes(checkout):
    folder = checkout / RUNS["rapid-H4"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["optimizer_steps"] == 32 * 4 / 8
    assert summary["completions"] == sum(summary["reasons"].values()) == 32 * 4


def test_deepspeed_compiles_nothing(checkout):
    """A job killed while DeepSpeed compiles would leave a lock that blocks later jobs."""
    assert not [path for path in (checkout / "compiled").rglob("*") if path.is_file()]
