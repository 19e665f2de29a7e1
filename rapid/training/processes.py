"""Exchange between processes: sampled completions, and log-probabilities of a sharded chunk."""

from accelerate import Accelerator
from torch import Tensor

from rapid.training.batches import Batch, padding_value


def gather_batch(batch: Batch, accelerator: Accelerator, pad_id: int) -> Batch:
    """Return the completions of all processes, in their order: whole groups, which any can run.

    Each process brings as many completions; ids are filled up with `pad_id` to the longest.
    """
    columns = {}
    for name, value in batch.items():
        fill, pads_left = padding_value(name, pad_id), name.startswith("prompt")
        padded = accelerator.pad_across_processes(value, 1, pad_index=fill, pad_first=pads_left)
        columns[name] = accelerator.gather(padded)
    return columns


def gather_logps(logps: Tensor, accelerator: Accelerator) -> Tensor:
    """Return the log-probabilities of a sharded chunk from all processes. (n, T) -> (N, T)

    A process brings those of its rows. All compute one and the same loss from them, and a process
    has the gradient of its own rows alone, times the number of processes: gradients are averaged
    over these.
    """
    processes, first = accelerator.num_processes, accelerator.process_index * len(logps)
    local = slice(first, first + len(logps))
    all_logps = accelerator.gather(logps.detach().contiguous())
    all_logps[local] = all_logps[local] + processes * (logps - logps.detach())
    return all_logps
