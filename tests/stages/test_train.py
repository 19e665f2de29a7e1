"""What the trainers of the pipeline are asked for."""

from pathlib import Path

import pytest
import torch

from rapid.config.params import load
from rapid.config.specs import Run, train_spec
from rapid.stages.train import _arguments


@pytest.mark.parametrize(
    ("precision", "length", "gpu", "plain"),
    [
        ("bfloat16", 64, False, True),
        ("bfloat16", 512, False, False),
        ("float32", 64, False, False),
        ("bfloat16", 64, True, False),
    ],
)
def test_attention_is_plain_on_cpus_in_bfloat16_over_few_tokens(
    values, monkeypatch, precision, length, gpu, plain
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    values["training"]["precision"] = precision
    values["benchmarks"]["math"]["max_completion_length"] = length
    run = Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    asked = _arguments(train_spec(load(values), run), Path("a", "b", "c"))
    assert asked["bf16"] == (precision == "bfloat16")
    assert ("attn_implementation" in asked["model_init_kwargs"]) == plain
