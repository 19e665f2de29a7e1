"""Gathers sampled completions and log-probabilities from all processes."""

from accelerate import Accelerator
from torch import Tensor

from rapid.training.batches import Batch, get_padding_value


def gather_batch(batch: Batch, accelerator: Accelerator, pad_id: int) -> Batch:
    """Return the completions of all processes, in the order of processes.

    The groups of the result are whole, so that any process can compute the loss of any group.

    Args:
        batch: completions of this process, of which every process has the same number. Prompts are
            padded on the left and completions on the right.
        pad_id: pads token ids to the longest prompt or completion of all processes.
    """
    columns = {}
    for name, value in batch.items():
        padding, pads_left = get_padding_value(name, pad_id), name.startswith("prompt")
        padded = accelerator.pad_across_processes(
            value, dim=1, pad_index=padding, pad_first=pads_left
        )
        columns[name] = accelerator.gather(padded)
    return columns


def gather_logps(logps: Tensor, accelerator: Accelerator) -> Tensor:
    """Return the log-probabilities of a chunk whose rows are divided among all processes.

    Each process passes those of its n rows, (n, T), gets those of all rows, (N, T), and computes
    the same loss from them. Only a process's own rows carry a gradient. It is multiplied by the
    number of processes, because DDP averages gradients over processes. See `rapid.training` for the
    term chunk.
    """
    processes, first_row = accelerator.num_processes, accelerator.process_index * len(logps)
    local = slice(first_row, first_row + len(logps))
    all_logps = accelerator.gather(logps.detach().contiguous())
    # The difference is 0, and carries the gradient.
    all_logps[local] = all_logps[local] + processes * (logps - logps.detach())
    return all_logps
