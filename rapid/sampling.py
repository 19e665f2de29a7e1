"""Samples completions from a saved model, for distillation and evaluation.

A prompt is a text that the model continues, or for a chat model the message of a user, which the
model's chat template renders.
"""

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rapid.benchmarks.base import Problem
from rapid.benchmarks.prompts import render_prompt, tokenize_prompt
from rapid.grading.grader import Grader
from rapid.grading.verdicts import Verdict
from rapid.training.caches import model_config
from rapid.training.generation import Decoder, can_decode
from rapid.training.refusals import refuse_prompts

BATCH = 256  # completions per batch when transformers samples


class Sample(BaseModel):
    """A sampled completion and its length in tokens, the end-of-text token included."""

    text: str
    tokens: int


def sample(
    kind: Literal["transformers", "vllm"],
    model: Path,
    prompts: Sequence[str],
    *,
    max_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
    chat: bool = False,
    precision: str = "float32",
    tensor_parallel: int = 1,
) -> list[Sample]:
    """Sample one completion for each prompt, and show a progress bar.

    Args:
        kind: the library that samples.
        model: folder of a Hugging Face model.
        prompts: for several completions of a prompt, repeat it in consecutive items.
        max_tokens: maximum number of tokens of a completion, which is cut off there.
        temperature: logits are divided by it; 1.0 samples from the model's own distribution.
        top_p: nucleus sampling; 1.0 samples from all tokens.
        seed: on one machine, the same seed, prompts and model give the same completions.
        chat: whether prompts are messages of a user to a chat model.
        precision: torch's name of the precision in which the model computes.
        tensor_parallel: number of GPUs among which vLLM splits the model.

    Raises:
        ValueError: a prompt has no tokens, or leaves no room for a completion.
    """
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=False)
    if tokenizer.pad_token is None:  # as in Llama's tokenizer
        tokenizer.pad_token = tokenizer.eos_token
    prompt_ids: list[list[int]] = []
    for prompt, repeats in groupby(prompts):
        prompt_ids += [tokenize_prompt(tokenizer, prompt, chat)] * len(list(repeats))
    sampling_params = {"temperature": temperature, "top_p": top_p, "top_k": 0}
    if kind == "vllm":
        sampling_params["max_tokens"] = max_tokens
        return _sample_with_vllm(
            model, prompt_ids, sampling_params, seed, precision, tensor_parallel
        )

    language_model = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, precision), use_safetensors=True, trust_remote_code=False
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    language_model = language_model.to(device).eval()
    refuse_prompts(prompts, prompt_ids, model_config(language_model))
    end_ids = language_model.generation_config.eos_token_id or tokenizer.eos_token_id
    end_ids = [end_ids] if isinstance(end_ids, int) else end_ids
    # Otherwise `generate` would take settings that `config` does not have, such as penalties, from
    # the model's own generation config.
    language_model.generation_config = GenerationConfig()
    tokens = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": end_ids}
    config = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=True, **sampling_params, **tokens
    )
    torch.manual_seed(seed)
    rows = _sample_with_transformers(language_model, tokenizer, prompt_ids, config)
    return [_decode_completion(row, tokenizer, end_ids) for row in rows]


@torch.inference_mode()
def sample_and_grade(
    model: Path,
    benchmark: str,
    problems: Sequence[Problem],
    grader: Grader,
    *,
    sampler: str,
    chat: bool,
    **sampling,
) -> list[tuple[Problem, Any, Verdict]]:
    """Sample and grade a completion for each problem.

    Args:
        benchmark: name of the benchmark, whose template renders the prompts.
        sampler: `kind` of `sample`.
        chat, sampling: further arguments of `sample`.

    Returns:
        For each problem: the problem, the sampled `Sample`, and its verdict.
    """
    prompts = [render_prompt(benchmark, problem, chat) for problem in problems]
    samples = sample(sampler, model, prompts, chat=chat, **sampling)
    pairs = list(zip(problems, samples, strict=True))
    return [
        (problem, completion, grader.grade(problem, completion.text))
        for problem, completion in tqdm(pairs, desc="grading", unit="completion")
    ]


def _sample_with_transformers(
    model, tokenizer, prompt_ids: list[list[int]], config
) -> list[torch.Tensor]:
    """Return a padded completion, (T,), of each prompt, in the order of the prompts.

    To save padding, prompts of similar length are put into a batch.
    """
    decoder = Decoder() if can_decode(model, config) else None
    by_length = sorted(range(len(prompt_ids)), key=lambda index: len(prompt_ids[index]))
    rows: dict[int, torch.Tensor] = {}
    with tqdm(total=len(prompt_ids), desc="sampling", unit="completion") as bar:
        for start in range(0, len(prompt_ids), BATCH):
            chunk = by_length[start : start + BATCH]
            prompts = {"input_ids": [prompt_ids[index] for index in chunk]}
            inputs = tokenizer.pad(prompts, return_tensors="pt").to(model.device)
            output = model.generate(**inputs, generation_config=config, custom_generate=decoder)
            rows |= zip(chunk, output[:, inputs["input_ids"].shape[1] :], strict=True)
            bar.update(len(chunk))
    return [rows[index] for index in range(len(prompt_ids))]


def _decode_completion(ids: torch.Tensor, tokenizer, end_ids: list[int]) -> Sample:
    """Return the completion in a row of token ids, (T,). What follows its end token is padding.

    Args:
        end_ids: token ids that end a completion.
    """
    positions = torch.isin(ids, torch.tensor(end_ids, device=ids.device)).nonzero()
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return Sample(text=text, tokens=int(positions[0]) + 1 if len(positions) else len(ids))


def _sample_with_vllm(
    model: Path,
    prompt_ids: list[list[int]],
    sampling_params: dict,
    seed: int,
    precision: str,
    gpus: int,
) -> list[Sample]:
    """Sample with a vLLM engine in this process, or on several GPUs in its child processes."""
    from rapid.training.trl.vllm import prepare_engine

    engine_options = prepare_engine()
    # Run the engine in this process, so that its random numbers follow from the seed and it does
    # not outlive this process.
    if gpus == 1:
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(model),
        dtype=precision,
        load_format="safetensors",
        seed=seed,
        tensor_parallel_size=gpus,
        enforce_eager=not torch.cuda.is_available(),
        **engine_options,
    )
    try:
        groups = [(ids, len(list(repeats))) for ids, repeats in groupby(prompt_ids)]
        outputs = engine.generate(
            [{"prompt_token_ids": ids} for ids, _ in groups],
            [SamplingParams(n=count, **sampling_params) for _, count in groups],
        )
        return [
            Sample(text=completion.text, tokens=len(completion.token_ids))
            for output in outputs
            for completion in output.outputs
        ]
    finally:
        engine.llm_engine.engine_core.shutdown()
