"""Tests that need GPUs: `make gpu`, or `pytest -m gpu`."""

import json
import math
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
import yaml
from transformers import AutoTokenizer

from rapid.config.specs import Run, TrainSpec
from rapid.cost.shapes import read_shape
from tests.conftest import ROOT, save_qwen2

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="not run: no CUDA device here"),
]


@pytest.fixture(scope="module")
def model(toy_model, tmp_path_factory):
    """A folder with 60 million random parameters, which are visible in a GPU's memory."""
    return save_qwen2(
        tmp_path_factory.mktemp("model"),
        AutoTokenizer.from_pretrained(toy_model),
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=12,
        vocab_size=32_000,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )


def train_in_processes(model, folder, launcher=(), **settings) -> list[dict]:
    """Train in one new process, or in those of a launcher; return the outcome of each."""
    command = [sys.executable, *launcher, "-m", "tests.gpu.worker", str(model), str(folder)]
    training = subprocess.run(
        [*command, json.dumps(settings)],
        cwd=ROOT, capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    assert training.returncode == 0, training.stdout[-2000:] + training.stderr[-4000:]
    return [json.loads(path.read_text()) for path in sorted(folder.glob("outcome.*.json"))]


def check_outcome(outcome: dict) -> None:
    assert outcome["device"].startswith("cuda")
    assert outcome["last_step"] <= 8
    assert outcome["finite"]
    assert outcome["changed"] > 0.9  # the share of matrices that changed
    assert len(outcome["log"]) == 8
    assert all(math.isfinite(row["loss"]) for row in outcome["log"])


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_trainer_trains_on_a_gpu(model, tmp_path, precision):
    (outcome,) = train_in_processes(model, tmp_path, bf16=precision == "bfloat16")
    check_outcome(outcome)
    assert outcome["log"][1]["rapid/staleness"] > 0


@pytest.mark.skipif(not find_spec("vllm"), reason="not run: vLLM is not installed")
def test_colocated_vllm_sleeps_and_gets_synced_weights(model, tmp_path):
    """The engine has the policy's log-probabilities even after steps, so weights were synced."""
    (outcome,) = train_in_processes(
        model, tmp_path, bf16=False, use_vllm=True, vllm_mode="colocate",
        vllm_enable_sleep_mode=True, vllm_gpu_memory_utilization=0.2, learning_rate=1e-3,
    )  # fmt: skip
    check_outcome(outcome)
    mismatch = [
        row["rapid/sampler_mismatch"] for row in outcome["log"] if "rapid/sampler_mismatch" in row
    ]
    assert len(mismatch) == 2  # one per inference batch; the second is after four steps
    assert max(mismatch) < 1e-2
    assert outcome["seconds"]["sync"] > 0


@pytest.mark.skipif(not find_spec("deepspeed"), reason="not run: DeepSpeed is not installed")
def test_zero2_trains_on_all_visible_gpus(model, tmp_path):
    count = torch.cuda.device_count()
    config = yaml.safe_load((ROOT / "workflow/accelerate/zero2.yaml").read_text())
    path = tmp_path / "zero2.yaml"
    path.write_text(yaml.safe_dump(config | {"num_processes": count}))
    launcher = ["-m", "accelerate.commands.launch", "--main_process_port", "0"]
    outcomes = train_in_processes(
        model, tmp_path, [*launcher, "--config_file", str(path)], n_step=4 * count
    )
    assert [outcome["processes"] for outcome in outcomes] == [count] * count
    assert len({outcome["device"] for outcome in outcomes}) == count
    assert all("DEEPSPEED" in outcome["kind"] for outcome in outcomes)
    for outcome in outcomes:
        check_outcome(outcome)


def test_memory_matches_the_plan(model, tmp_path, values):
    """Training with micro-batches of 4 completions of 512 tokens, within a factor of 1.5."""
    pytest.importorskip("scipy", reason="not run: SciPy is not installed")
    from rapid.cost.expected import Expected
    from rapid.cost.memory import estimate_job_memory

    (outcome,) = train_in_processes(
        model, tmp_path, max_completion_length=512, max_steps=2, skip_zero_groups=False
    )
    rapid = {name: values["rapid"][name] for name in ("eta", "clip")}
    spec = TrainSpec(
        run=Run(benchmark="math", model="m", algorithm="rapid-H4", seed=1),
        compute={"device": "gpu"}, chat=False, n_step=16, H=4, snapshots=0, sampling_batch=None,
        training=values["training"] | {"precision": "bfloat16"}, objective=rapid,
        max_completion_length=512, timeout=1.0,
    )  # fmt: skip
    planned_memory = estimate_job_memory(
        spec, read_shape(model / "config.json"), Expected(limit=512, length=512, prompt=10)
    )
    # Without the head; micro-batches have 4 completions.
    planned = (planned_memory.total - planned_memory.head) / 1e9
    print(f"{outcome['gpu']}: {outcome['peak_gb']:.2f} GB used, {planned:.2f} GB planned")
    assert planned / 1.5 < outcome["peak_gb"] < planned * 1.5
