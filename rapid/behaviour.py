"""log mu as the sampler saw it, so that no forward pass has to find it again."""

import torch
from torch import Tensor
from transformers import LogitsProcessor


class BehaviourRecorder(LogitsProcessor):
    """Records log mu of every sampled token while `transformers.generate` samples.

    generate hands a processor the logits of the next token and the tokens so far: what was recorded
    at one call is known to be sampled at the next.

    Args:
        temperature: of sampling; the recorded distribution is softmax(logits / temperature).
    """

    def __init__(self, temperature: float):
        self.temperature = temperature
        self._next: Tensor | None = None  # (N, V) log-probabilities of the token being sampled
        self._tokens: list[Tensor] = []  # (N,) each

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._take(input_ids[:, -1])
        self._next = torch.log_softmax(scores.float() / self.temperature, dim=-1)
        return scores

    def _take(self, tokens: Tensor) -> None:
        if self._next is not None:
            self._tokens.append(self._next.gather(1, tokens[:, None])[:, 0])

    def finish(self, sequences: Tensor) -> Tensor:
        """log mu of the completions, (N, T), given generate's output, (N, prompt + T)."""
        self._take(sequences[:, -1])
        return torch.stack(self._tokens, dim=1)
