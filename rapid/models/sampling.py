"""Prompts in, completions out: how distillation and evaluation sample from a model.

`sampler` opens a model with transformers or with vLLM, behind one interface. A prompt is a text
that the model continues, or what a user says to a chat model, in its own template.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rapid.benchmarks.prompts import prompt_ids
from rapid.training.caches import model_config
from rapid.training.generation import Decoder, can_decode
from rapid.training.refusals import refuse_prompts


class Sample(BaseModel):
    """A sampled completion and its length in tokens, the end-of-text token included."""

    text: str
    tokens: int


class Sampler(ABC):
    """Samples completions from the model in a folder.

    Args:
        model: a Hugging Face folder or name.
        chat: prompts are what a user says.
    """

    def __init__(self, model: Path | str, chat: bool = False):
        self.tokenizer = AutoTokenizer.from_pretrained(
            model, padding_side="left", trust_remote_code=False
        )
        if self.tokenizer.pad_token is None:  # Llama's
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.chat = chat

    @abstractmethod
    def sample(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float,
        seed: int,
    ) -> list[Sample]:
        """Sample one completion for each prompt; repeat a prompt for more. Shows a progress bar.

        Args:
            max_tokens: length limit; a completion that reaches it is cut there.
            temperature: of the distribution sampled from; 1.0 is the model's own.
            top_p: nucleus; 1.0 samples from all of it.
            seed: the same seed, prompts and model give the same completions on one machine.
        """


class TransformersSampler(Sampler):
    """Sample with transformers, `batch_size` completions at a time."""

    def __init__(
        self,
        model: Path | str,
        chat: bool = False,
        precision: str = "float32",
        batch_size: int = 512,
    ):
        super().__init__(model, chat)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = getattr(torch, precision)
        loaded = AutoModelForCausalLM.from_pretrained(
            model, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
        self.model = loaded.to(self.device).eval()
        self.batch_size = batch_size
        ends = self.model.generation_config.eos_token_id or self.tokenizer.eos_token_id
        self.ends = torch.tensor([ends] if isinstance(ends, int) else ends, device=self.device)

    @torch.inference_mode()
    def sample(self, prompts, *, max_tokens, temperature, top_p, seed):
        torch.manual_seed(seed)
        config = GenerationConfig(
            max_new_tokens=max_tokens,
            do_sample=True,
            temperature=temperature,
            top_p=top_p,
            top_k=0,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.ends.tolist(),
        )
        decoder = Decoder() if can_decode(self.model, config) else None
        samples = []
        with tqdm(total=len(prompts), desc="sampling", unit="completion") as bar:
            for start in range(0, len(prompts), self.batch_size):
                some = prompts[start:][: self.batch_size]
                chunk = [prompt_ids(self.tokenizer, prompt, self.chat) for prompt in some]
                refuse_prompts(some, chunk, model_config(self.model))
                inputs = self.tokenizer.pad({"input_ids": chunk}, return_tensors="pt")
                inputs = inputs.to(self.device)
                output = self.model.generate(
                    **inputs, generation_config=config, custom_generate=decoder
                )
                samples += [self._sample(row) for row in output[:, inputs["input_ids"].shape[1] :]]
                bar.update(len(chunk))
        return samples

    def _sample(self, ids: torch.Tensor) -> Sample:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        ends = torch.isin(ids, self.ends).nonzero()  # what follows the first end is padding
        return Sample(text=text, tokens=int(ends[0]) + 1 if len(ends) else len(ids))


class VLLMSampler(Sampler):
    """Sample with a vLLM engine in this process.

    Args:
        seed: of the engine, which `sample` has to be asked for.
        tensor_parallel: GPUs that share the model.
    """

    def __init__(
        self,
        model: Path | str,
        chat: bool = False,
        precision: str = "float32",
        tensor_parallel: int = 1,
        seed: int = 0,
    ):
        super().__init__(model, chat)
        from rapid.training.trl.vllm import prepare_environment

        prepare_environment()
        # In this process: its random numbers follow from the seed, and it ends with this one.
        if tensor_parallel == 1:
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from vllm import LLM

        self.engine = LLM(
            model=str(model),
            dtype=precision,
            load_format="safetensors",
            seed=seed,
            tensor_parallel_size=tensor_parallel,
            enforce_eager=not torch.cuda.is_available(),
        )
        self.seed = seed

    def sample(self, prompts, *, max_tokens, temperature, top_p, seed):
        from vllm import SamplingParams

        if seed != self.seed:
            raise ValueError(f"the engine was built with seed {self.seed}, not {seed}")
        groups = [(prompt, len(list(same))) for prompt, same in groupby(prompts)]
        settings = [
            SamplingParams(
                n=count, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=0
            )
            for _, count in groups
        ]
        encoded = [
            {"prompt_token_ids": prompt_ids(self.tokenizer, prompt, self.chat)}
            for prompt, _ in groups
        ]
        samples = []
        for output in self.engine.generate(encoded, settings):
            samples += [Sample(text=o.text, tokens=len(o.token_ids)) for o in output.outputs]
        return samples


@contextmanager
def sampler(
    kind: Literal["transformers", "vllm"],
    model: Path | str,
    *,
    chat: bool,
    precision: str,
    seed: int,
    tensor_parallel: int = 1,
) -> Iterator[Sampler]:
    """Open a model for as long as it is needed."""
    if kind == "transformers":
        yield TransformersSampler(model, chat, precision)
        return
    opened = VLLMSampler(model, chat, precision, tensor_parallel, seed)
    try:
        yield opened
    finally:
        opened.engine.llm_engine.engine_core.shutdown()
