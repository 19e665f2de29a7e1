"""Instruments for sampling with transformers: prompts are shared, log mu kept, ends announced.

`generate` of transformers is left as it is; it gets a filled cache and processors that only look.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from rapid.training.forward import can_share_prompts, prefilled


class BehaviourRecorder(LogitsProcessor):
    """Record log mu of every token that `generate` samples, from softmax(logits / temperature).

    `generate` hands a processor the logits of the next token and the tokens so far: the token that
    was sampled after one call is known at the next.
    """

    def __init__(self, temperature: float):
        self.temperature = temperature
        self._next: Tensor | None = None  # (N, V) log-probabilities of the token being sampled
        self._tokens: list[Tensor] = []  # (N, 1) each

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._next is not None:
            self._tokens.append(self._next.gather(1, input_ids[:, -1:]))
        self._next = torch.log_softmax(scores.float() / self.temperature, dim=-1)
        return scores

    def finish(self, sequences: Tensor) -> Tensor:
        """Return log mu of the completions, (N, T), given generate's output, (N, prompt + T)."""
        return torch.cat([*self._tokens, self._next.gather(1, sequences[:, -1:])], dim=1)


class EndWatcher(LogitsProcessor):
    """Announce which completions have just ended, while others are still being sampled.

    Args:
        width: of the prompts.
        ends: token ids that end a completion.
        on_end: called with a row and its tokens, the end included.
    """

    def __init__(self, width: int, ends: Tensor, on_end: Callable[[int, list[int]], None]):
        self.width, self.ends, self.on_end = width, ends, on_end
        self._ended: set[int] = set()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.size(1) > self.width:
            at_end = torch.isin(input_ids[:, -1], self.ends.to(input_ids.device))
            for row in at_end.nonzero().flatten().tolist():
                if row not in self._ended:
                    self._ended.add(row)
                    self.on_end(row, input_ids[row, self.width :].tolist())
        return scores


def prefill(model, input_ids: Tensor, attention_mask: Tensor) -> dict:
    """Return arguments for `generate`: a cache for which each different prompt was computed once.

    They are none where no prompt is there twice, or where prompts cannot be shared. The last token
    of a prompt is left for `generate`, which wants to compute one.
    """
    if not can_share_prompts(model):
        return {}
    key = torch.cat([input_ids, attention_mask], dim=1)
    different, rows = torch.unique(key, dim=0, return_inverse=True)
    if len(different) == len(key) or input_ids.size(1) < 2:
        return {}
    ids, mask = different.chunk(2, dim=1)
    _, cache = prefilled(model, ids[:, :-1], mask[:, :-1])
    cache.batch_select_indices(rows)
    return {"past_key_values": cache}


@contextmanager
def instrumented(
    model,
    *,
    share_prefill: bool,
    record_at: float | None,
    ends: Tensor,
    on_end: Callable[[int, list[int]], None] | None,
) -> Iterator[list[Tensor]]:
    """Let `model.generate`, meanwhile, share prompts, record log mu and announce ends.

    Args:
        record_at: the temperature of sampling, to record log mu; None records nothing.
        ends, on_end: see `EndWatcher`; None watches nothing.

    Yields:
        A list that gets log mu, (T,), of each completion in the order of sampling.
    """
    generate = model.generate
    recorded: list[Tensor] = []

    def instrumented_generate(input_ids, attention_mask, **others):
        processors = LogitsProcessorList()
        if record_at is not None:
            processors.append(recorder := BehaviourRecorder(record_at))
        if on_end:
            processors.append(EndWatcher(input_ids.size(1), ends, on_end))
        if share_prefill:
            others |= prefill(model, input_ids, attention_mask)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        output = generate(**inputs, logits_processor=processors, **others)
        if record_at is not None:
            recorded.extend(recorder.finish(output))
        return output

    with patch.object(model, "generate", instrumented_generate):
        yield recorded
