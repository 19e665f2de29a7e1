"""Arguments that training jobs give their trainers."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from rapid.artifacts.files import BadInput
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.prompts import render_prompt, tokenize_prompt
from rapid.config.params import load
from rapid.config.specs import Run, build_train_spec
from rapid.stages.train import _build_sampler_settings, build_trainer_arguments


@pytest.mark.parametrize(
    ("precision", "length", "gpu", "is_plain"),
    [
        ("bfloat16", 64, False, True),
        ("bfloat16", 512, False, False),
        ("float32", 64, False, False),
        ("bfloat16", 64, True, False),
    ],
)
def test_attention_is_plain_on_cpus_in_bfloat16_over_few_tokens(
    values, monkeypatch, precision, length, gpu, is_plain
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    values["training"]["precision"] = precision
    values["benchmarks"]["math"]["max_completion_length"] = length
    run = Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    arguments = build_trainer_arguments(build_train_spec(load(values), run), Path("a", "b", "c"))
    assert arguments["bf16"] == (precision == "bfloat16")
    assert ("attn_implementation" in arguments["model_init_kwargs"]) == is_plain


def test_completion_beyond_the_context_is_refused_with_vllm(values, toy_model, tmp_path):
    values["benchmarks"]["math"]["max_completion_length"] = 64
    values["compute"]["sampler"] = "vllm"
    run = Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    spec = build_train_spec(load(values), run)
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    problems = [MathProblem(unique_id=text, problem=text, answer="1") for text in ("1", "1 + 1?")]
    text = render_prompt("math", problems[1], spec.chat)
    length = len(tokenize_prompt(tokenizer, text, spec.chat))
    config = AutoConfig.from_pretrained(toy_model)

    def build_settings(room: int) -> dict:
        config.max_position_embeddings = length + room
        config.save_pretrained(tmp_path)
        return _build_sampler_settings(spec, tmp_path, tokenizer, problems)

    assert build_settings(64)["vllm_max_model_length"] == length + 64
    with pytest.raises(BadInput, match=r"math\.max_completion_length: .* at most 63"):
        build_settings(63)


@pytest.mark.parametrize(
    ("algorithm", "schedules", "expected"),
    [
        ("rapid-H4", {}, "constant"),
        ("rapid-H4", {"training": "cosine", "sft": "linear"}, "cosine"),
        ("sft", {"training": "cosine", "sft": "linear"}, "linear"),
    ],
)
def test_schedule_of_the_learning_rate_is_a_parameter(values, algorithm, schedules, expected):
    run = Run(benchmark="math", model="tiny-qwen2", algorithm=algorithm, seed=1)
    for section, schedule in schedules.items():
        values[section]["schedule"] = schedule
    spec = build_train_spec(load(values), run)
    assert build_trainer_arguments(spec, Path("x"))["lr_scheduler_type"] == expected
    # The default is left out of specs, so that earlier jobs stay current.
    assert ('"schedule"' in spec.model_dump_json()) == bool(schedules)
