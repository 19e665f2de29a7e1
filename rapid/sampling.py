"""Sample completions from a model, for distillation, evaluation and `rapid ask`.

A prompt is either a text that the model continues, or a user's message to a chat model, which is
put into the model's chat template.
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

BATCH = 256  # completions that transformers samples at a time


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

    For several completions of a prompt, repeat the prompt.

    Args:
        kind: the library that samples.
        model: folder of the model, in Hugging Face's format.
        max_tokens: limit of a completion's length, at which it is cut off.
        temperature: divides the logits; 1.0 samples from the model's distribution.
        top_p: sample from the most probable tokens with this total probability; 1.0: from all.
        seed: the same seed, prompts and model give the same completions on one machine.
        chat: whether prompts are messages to a chat model.
        precision: torch's name of the type of the weights.
        tensor_parallel: number of GPUs that share the model; for vLLM only.

    Raises:
        ValueError: a prompt has no tokens, or leaves no room for a completion.
    """
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=False)
    if tokenizer.pad_token is None:  # as in Llama's tokenizer
        tokenizer.pad_token = tokenizer.eos_token
    encoded: list[list[int]] = []
    for prompt, same in groupby(prompts):
        encoded += [tokenize_prompt(tokenizer, prompt, chat)] * len(list(same))
    drawn = {"temperature": temperature, "top_p": top_p, "top_k": 0}
    if kind == "vllm":
        drawn["max_tokens"] = max_tokens
        return _by_vllm(model, encoded, drawn, seed, precision, tensor_parallel)

    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, precision), use_safetensors=True, trust_remote_code=False
    )
    loaded = loaded.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    refuse_prompts(prompts, encoded, model_config(loaded))
    ends = loaded.generation_config.eos_token_id or tokenizer.eos_token_id
    ends = [ends] if isinstance(ends, int) else ends
    # Settings that `config` does not set are taken from the model's generation_config, which may
    # have a repetition penalty, for example. It is replaced by transformers' defaults.
    loaded.generation_config = GenerationConfig()
    tokens = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": ends}
    config = GenerationConfig(max_new_tokens=max_tokens, do_sample=True, **drawn, **tokens)
    torch.manual_seed(seed)
    rows = _by_transformers(loaded, tokenizer, encoded, config)
    return [_until_its_end(row, tokenizer, ends) for row in rows]


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
    """Sample one completion for each problem, and grade it.

    Args:
        problems: repeat a problem for several completions.
        sampler: `kind` of `sample`.
        sampling: further arguments of `sample`.

    Returns:
        For each problem the problem, its completion (`Sample`) and the verdict on it.
    """
    prompts = [render_prompt(benchmark, problem, chat) for problem in problems]
    samples = sample(sampler, model, prompts, chat=chat, **sampling)
    pairs = list(zip(problems, samples, strict=True))
    return [
        (problem, completion, grader.grade(problem, completion.text))
        for problem, completion in tqdm(pairs, desc="grading", unit="completion")
    ]


def _by_transformers(model, tokenizer, encoded: list[list[int]], config) -> list[torch.Tensor]:
    """Sample with transformers, in batches of prompts of similar length.

    Args:
        encoded: token ids of each prompt.

    Returns:
        Token ids of each completion, padded to the longest one of its batch; shape (T,).
    """
    decoder = Decoder() if can_decode(model, config) else None
    by_length = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
    rows: dict[int, torch.Tensor] = {}
    with tqdm(total=len(encoded), desc="sampling", unit="completion") as bar:
        for start in range(0, len(encoded), BATCH):
            chunk = by_length[start : start + BATCH]
            prompts = {"input_ids": [encoded[index] for index in chunk]}
            inputs = tokenizer.pad(prompts, return_tensors="pt").to(model.device)
            output = model.generate(**inputs, generation_config=config, custom_generate=decoder)
            rows |= zip(chunk, output[:, inputs["input_ids"].shape[1] :], strict=True)
            bar.update(len(chunk))
    return [rows[index] for index in range(len(encoded))]


def _until_its_end(ids: torch.Tensor, tokenizer, ends: list[int]) -> Sample:
    """Return the completion in a row of `_by_transformers`.

    Args:
        ids: token ids, shape (T,); all after the first end-of-text token are padding.
        ends: ids of the end-of-text tokens.
    """
    positions = torch.isin(ids, torch.tensor(ends, device=ids.device)).nonzero()
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return Sample(text=text, tokens=int(positions[0]) + 1 if len(positions) else len(ids))


def _by_vllm(
    model: Path, encoded: list[list[int]], drawn: dict, seed: int, precision: str, gpus: int
) -> list[Sample]:
    """Sample with vLLM; arguments as in `sample` and `_by_transformers`."""
    from rapid.training.trl.vllm import prepare_engine

    needed = prepare_engine()
    # On one GPU vLLM's engine runs in this process, not in its own: its random numbers then follow
    # from the seed, and it ends with this process.
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
        **needed,
    )
    try:
        groups = [(ids, len(list(same))) for ids, same in groupby(encoded)]
        outputs = engine.generate(
            [{"prompt_token_ids": ids} for ids, _ in groups],
            [SamplingParams(n=count, **drawn) for _, count in groups],
        )
        return [
            Sample(text=completion.text, tokens=len(completion.token_ids))
            for output in outputs
            for completion in output.outputs
        ]
    finally:
        engine.llm_engine.engine_core.shutdown()
