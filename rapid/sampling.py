"""Prompts in, completions out: how distillation and evaluation sample from a model."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


class Sample(BaseModel):
    """A sampled completion and its length in tokens, the end-of-text token included."""

    text: str
    tokens: int


class TransformersSampler:
    """Sample with `transformers.generate`.

    Args:
        model: a Hugging Face folder or name.
        batch_size: completions sampled at a time.
    """

    def __init__(self, model: Path | str, batch_size: int = 512):
        self.tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = AutoModelForCausalLM.from_pretrained(model).to(self.device).eval()
        self.batch_size = batch_size
        ends = self.model.generation_config.eos_token_id or self.tokenizer.eos_token_id
        self.ends = torch.tensor([ends] if isinstance(ends, int) else ends, device=self.device)

    @torch.inference_mode()
    def sample(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float,
        seed: int,
        progress: Callable[[int], None] = lambda count: None,
    ) -> list[Sample]:
        """One completion for each prompt; repeat a prompt for more.

        Args:
            max_tokens: length limit; a completion that reaches it is cut there.
            temperature: of the distribution sampled from; 1.0 is the model's own.
            top_p: nucleus; 1.0 samples from all of it.
            seed: the same seed, prompts and model give the same completions on one machine.
            progress: called with the number of completions just sampled.
        """
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
        samples = []
        for start in range(0, len(prompts), self.batch_size):
            chunk = list(prompts[start : start + self.batch_size])
            inputs = self.tokenizer(chunk, return_tensors="pt", padding=True).to(self.device)
            inputs.pop("token_type_ids", None)
            output = self.model.generate(**inputs, generation_config=config)
            samples += [self._sample(row) for row in output[:, inputs["input_ids"].shape[1] :]]
            progress(len(chunk))
        return samples

    def _sample(self, ids: torch.Tensor) -> Sample:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        ends = torch.isin(ids, self.ends).nonzero()  # what follows the first end is padding
        return Sample(text=text, tokens=int(ends[0]) + 1 if len(ends) else len(ids))
