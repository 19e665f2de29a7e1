"""Samples completions from a saved model, for distillation, evaluation and `rapid ask`.

A prompt is a text that the model continues, or a user's message to a chat model, which the model's
chat template renders.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, Field
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rapid.benchmarks.base import Problem
from rapid.benchmarks.prompts import read_context_length, render_prompt, tokenize_prompt
from rapid.grading.pool import GraderPool
from rapid.grading.verdicts import Verdict
from rapid.processes.lifetimes import end_with_parent
from rapid.training.caches import get_text_config
from rapid.training.generation import Decoder, can_decode
from rapid.training.refusals import refuse_prompts

BATCH_SIZE = 256  # completions per batch with transformers
MAX_LOGITS = 2**26  # of a forward pass that measures entropy: 268 MB in float32


class Sample(BaseModel):
    """A sampled completion: its text, number of tokens and token ids.

    `tokens` and `ids` include the end-of-text token, if the completion has one.
    """

    text: str
    tokens: int
    ids: list[int] = Field(default_factory=list, exclude=True, repr=False)


def sample(
    sampler: Literal["transformers", "vllm"],
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
        sampler: the library to sample with.
        model: folder of a Hugging Face model.
        prompts: to sample several completions of a prompt, repeat it in consecutive items.
        max_tokens: number of tokens after which a completion is cut off.
        temperature: logits are divided by it; 1.0 samples from the model's own distribution.
        top_p: nucleus sampling; 1.0 samples from all tokens.
        seed: the same seed, prompts and model give the same completions on one machine.
        chat: whether prompts are messages of a user to a chat model.
        precision: torch's name for the precision in which the model computes.
        tensor_parallel: number of GPUs among which vLLM splits the model.

    Raises:
        ValueError: a prompt has no tokens, or leaves no room for a completion.
    """
    tokenizer, prompt_ids = _encode_prompts(model, prompts, chat)
    sampling_params = {"temperature": temperature, "top_p": top_p, "top_k": 0}
    if sampler == "vllm":
        sampling_params["max_tokens"] = max_tokens
        longest = max(map(len, prompt_ids), default=0) + max_tokens
        limit = _limit_length(model, tokenizer, longest)
        return _sample_with_vllm(
            model, prompt_ids, sampling_params, seed, precision, tensor_parallel, limit
        )

    language_model = _load_model(model, precision)
    refuse_prompts(prompts, prompt_ids, get_text_config(language_model))
    end_ids = language_model.generation_config.eos_token_id or tokenizer.eos_token_id
    end_ids = [end_ids] if isinstance(end_ids, int) else end_ids
    # Otherwise `generate` would take missing settings, such as penalties, from the model's own
    # generation config.
    language_model.generation_config = GenerationConfig()
    special_tokens = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": end_ids}
    config = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=True, **sampling_params, **special_tokens
    )
    torch.manual_seed(seed)
    rows = _sample_with_transformers(language_model, tokenizer, prompt_ids, config)
    return [_decode_completion(row, tokenizer, end_ids) for row in rows]


@torch.inference_mode()
def sample_and_grade(
    model: Path,
    benchmark: str,
    problems: Sequence[Problem],
    grader: GraderPool,
    *,
    sampler: str,
    chat: bool,
    **sampling,
) -> list[tuple[Problem, Any, Verdict]]:
    """Sample a completion for each problem, then grade all of them.

    Args:
        benchmark: name of the benchmark, whose template renders the prompts.
        grader: grades as many completions at a time as it has graders.
        sampler, chat, sampling: arguments of `sample`.

    Returns:
        For each problem: the problem, the completion (a `Sample`), and its verdict.
    """
    prompts = [render_prompt(benchmark, problem, chat) for problem in problems]
    samples = sample(sampler, model, prompts, chat=chat, **sampling)
    with ThreadPoolExecutor(grader.size) as threads:
        verdicts = threads.map(grader.grade, problems, [sample.text for sample in samples])
        bar = tqdm(verdicts, desc="grading", unit="completion", total=len(problems))
        return list(zip(problems, samples, bar, strict=True))


@torch.inference_mode()
def measure_entropy(
    model: Path,
    prompts: Sequence[str],
    samples: Sequence[Sample],
    *,
    temperature: float,
    chat: bool = False,
    precision: str = "float32",
) -> float:
    """Return the mean entropy, in nats, of the model's distribution of the next token.

    The mean is over all tokens of the completions. The distribution is over the whole vocabulary,
    at this temperature and without top-p.

    Args:
        prompts: the prompt of each sample.
        samples: the completions, whose `ids` must be set.
        model, temperature, chat, precision: as for `sample`.
    """
    _, encoded = _encode_prompts(model, prompts, chat)
    loaded = _load_model(model, precision)
    vocabulary = get_text_config(loaded).vocab_size
    pairs = sorted(zip(encoded, samples, strict=True), key=lambda pair: -_count_tokens(*pair))
    total, count, start = 0.0, 0, 0
    while start < len(pairs):
        longest = _count_tokens(*pairs[start])
        batch = pairs[start : start + max(1, MAX_LOGITS // (longest * vocabulary))]
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        is_token, is_counted = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, (prompt, completion) in enumerate(batch):
            end = _count_tokens(prompt, completion)
            ids[row, :end] = torch.tensor([*prompt, *completion.ids])
            is_token[row, :end] = 1
            is_counted[row, len(prompt) - 1 : end - 1] = 1  # logits predict the next token
        ids, is_token, is_counted = (
            tensor.to(loaded.device) for tensor in (ids, is_token, is_counted)
        )
        logits = loaded(input_ids=ids, attention_mask=is_token).logits.float() / temperature
        logp = logits.log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1)  # (N, T)
        total += float((entropy.double() * is_counted).sum())
        count += int(is_counted.sum())
        start += len(batch)
    return total / count


def _count_tokens(prompt: list[int], completion: Sample) -> int:
    return len(prompt) + len(completion.ids)


def _encode_prompts(model: Path, prompts: Sequence[str], chat: bool) -> tuple[Any, list[list[int]]]:
    """Return the model's tokenizer and each prompt's token ids; equal neighbours share a list."""
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=False)
    if tokenizer.pad_token is None:  # as in Llama's tokenizer
        tokenizer.pad_token = tokenizer.eos_token
    encoded: list[list[int]] = []
    for prompt, repeats in groupby(prompts):
        encoded += [tokenize_prompt(tokenizer, prompt, chat)] * len(list(repeats))
    return tokenizer, encoded


def _load_model(model: Path, precision: str) -> Any:
    """Return a model for sampling, on the GPU if there is one."""
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, precision), use_safetensors=True, trust_remote_code=False
    )
    return loaded.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _sample_with_transformers(
    model, tokenizer, prompt_ids: list[list[int]], config
) -> list[torch.Tensor]:
    """Return a padded completion, (T,), of each prompt, in the order of the prompts.

    Prompts of similar length are in one batch, to save padding.
    """
    decoder = Decoder() if can_decode(model, config) else None
    by_length = sorted(range(len(prompt_ids)), key=lambda index: len(prompt_ids[index]))
    rows: dict[int, torch.Tensor] = {}
    with tqdm(total=len(prompt_ids), desc="sampling", unit="completion") as bar:
        for start in range(0, len(prompt_ids), BATCH_SIZE):
            chunk = by_length[start : start + BATCH_SIZE]
            prompts = {"input_ids": [prompt_ids[index] for index in chunk]}
            inputs = tokenizer.pad(prompts, return_tensors="pt").to(model.device)
            output = model.generate(**inputs, generation_config=config, custom_generate=decoder)
            rows |= zip(chunk, output[:, inputs["input_ids"].shape[1] :], strict=True)
            bar.update(len(chunk))
    return [rows[index] for index in range(len(prompt_ids))]


def _decode_completion(ids: torch.Tensor, tokenizer, end_ids: list[int]) -> Sample:
    """Return the completion in a row of token ids, (T,), with padding after its end token."""
    positions = torch.isin(ids, torch.tensor(end_ids, device=ids.device)).nonzero()
    text = tokenizer.decode(ids, skip_special_tokens=True)
    tokens = int(positions[0]) + 1 if len(positions) else len(ids)
    return Sample(text=text, tokens=tokens, ids=ids[:tokens].tolist())


def _limit_length(model: Path, tokenizer, longest: int) -> int | None:
    """Return vLLM's `max_model_len` for sequences of at most `longest` tokens.

    By default it is the largest number of tokens that the model takes. For a model that takes very
    many, such as Llama 3.2, vLLM then refuses to start if a GPU's memory cannot hold so many. If
    `longest` may be more than the model takes, the result is None, the default.
    """
    return longest if longest <= read_context_length(model, tokenizer) else None


def _sample_with_vllm(
    model: Path,
    prompt_ids: list[list[int]],
    sampling_params: dict,
    seed: int,
    precision: str,
    gpus: int,
    max_model_len: int | None,
) -> list[Sample]:
    """Sample with a vLLM engine in this process, which on several GPUs has a worker for each."""
    from rapid.training.trl.vllm import prepare_engine

    engine_options = prepare_engine()
    # Run the engine in this process, so that its random numbers follow from the seed and it ends
    # with this process. An engine in a process of its own does not notice that its parent ends.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # Workers on several GPUs: if this process has used CUDA, forked ones could not use it.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(model),
        dtype=precision,
        load_format="safetensors",
        seed=seed,
        tensor_parallel_size=gpus,
        max_model_len=max_model_len,
        enforce_eager=not torch.cuda.is_available(),
        **engine_options,
    )
    try:
        if gpus > 1:
            # A worker notices by itself that this process has ended, but only between two steps. If
            # it waits for another worker that has ended before, it waits forever.
            engine.collective_rpc(lambda _worker: end_with_parent())
        groups = [(ids, len(list(repeats))) for ids, repeats in groupby(prompt_ids)]
        outputs = engine.generate(
            [{"prompt_token_ids": ids} for ids, _ in groups],
            [SamplingParams(n=count, **sampling_params) for _, count in groups],
        )
        return [
            Sample(
                text=completion.text,
                tokens=len(completion.token_ids),
                ids=list(completion.token_ids),
            )
            for output in outputs
            for completion in output.outputs
        ]
    finally:
        engine.llm_engine.engine_core.shutdown()
