"""What processes exchange: completions, once sampled, and log-probabilities in a torn pass."""

import torch
from accelerate import Accelerator
from torch import Tensor

from rapid.training.batches import Batch, widen


def gathered(batch: Batch, accelerator: Accelerator, pad_id: int) -> Batch:
    """The completions of all processes, in their order: whole groups, which any of them can run.

    Args:
        batch: as many completions as any other process brings.
        pad_id: fills ids up to the longest of all processes.
    """
    if accelerator.num_processes == 1:
        return batch
    everyones = {}
    for name, value in batch.items():
        if value.dim() == 2:
            width = torch.tensor(value.size(1), device=value.device)
            value = widen(value, int(accelerator.gather(width).max()), name, pad_id)
        everyones[name] = accelerator.gather(value)
    return everyones


def with_others(logp: Tensor, accelerator: Accelerator) -> Tensor:
    """The log-probabilities of a torn pass from all processes, of which this one brings its rows.

    (n, T) -> (n * processes, T). All compute one and the same loss from them, and a process has the
    gradient of its own rows alone, times the number of processes: gradients are averaged over these.
    """
    processes, first = accelerator.num_processes, accelerator.process_index * len(logp)
    own = slice(first, first + len(logp))
    everyones = accelerator.gather(logp.detach().contiguous())
    everyones[own] = everyones[own] + processes * (logp - logp.detach())
    return everyones
