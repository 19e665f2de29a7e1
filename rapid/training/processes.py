"""What processes exchange: completions, once sampled, and log-probabilities in a torn pass."""

from accelerate import Accelerator
from torch import Tensor

from rapid.training.batches import Batch, padding


def gathered(batch: Batch, accelerator: Accelerator, pad_id: int) -> Batch:
    """Return the completions of all processes, in their order: whole groups, which any can run.

    Each process brings as many completions; ids are filled up with `pad_id` to the longest.
    """
    everyones = {}
    for name, value in batch.items():
        fill, left = padding(name, pad_id), name.startswith("prompt")
        padded = accelerator.pad_across_processes(value, 1, pad_index=fill, pad_first=left)
        everyones[name] = accelerator.gather(padded)
    return everyones


def with_others(logp: Tensor, accelerator: Accelerator) -> Tensor:
    """Return the log-probabilities of a torn pass from all processes. (n, T) -> (n * processes, T)

    A process brings those of its rows. All compute one and the same loss from them, and a process
    has the gradient of its own rows alone, times the number of processes: gradients are averaged
    over these.
    """
    processes, first = accelerator.num_processes, accelerator.process_index * len(logp)
    own = slice(first, first + len(logp))
    everyones = accelerator.gather(logp.detach().contiguous())
    everyones[own] = everyones[own] + processes * (logp - logp.detach())
    return everyones
