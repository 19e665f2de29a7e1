"""How a mini-batch is cut into forward and backward passes, for each process.

block         some groups of a mini-batch, whose loss is computed together
pass          one forward and backward pass: a block, or some rows of a block that is too large
torn block    its rows are divided among the processes; any other block is one process's

A pass is a batch with all rows of its block, as the loss needs them; each `one_prompt` rows, 0-d,
have one. Where it does not run all rows, further columns say what it runs:

own_rows      (n,), the rows that this process runs in this pass
own_weight    0-d, what they count beside those of other processes: their number, or 0, in a torn
              block, else 1
is_last       0-d, whether it is this process's last pass of the block; missing where a block is
              torn and each process makes one pass of it
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rapid.training.batches import FORWARD, Batch, group_widths, learned, rows, take, trimmed

Block = list[Batch]  # its passes
OWN = (*FORWARD, "tool_mask", "sampler_logp")  # columns of which a pass needs its own rows only


@dataclass(frozen=True)
class PassSize:
    """The most that a pass may hold. One completion may have more.

    Args:
        completions: of a pass whose completions are in order, as wide as the inference batch.
        tokens: padded tokens, prompts included, of a pass whose completions are of like length and
            which is cut to the longest. None is the other kind of pass.
    """

    completions: int
    tokens: int | None = None

    @property
    def packs(self) -> bool:
        """Return whether completions of like length share a pass."""
        return self.tokens is not None

    def halved(self, times: int) -> "PassSize":
        """Return half of it, again and again, down to one completion."""
        tokens = None if self.tokens is None else max(1, self.tokens >> times)
        return PassSize(max(1, self.completions >> times), tokens)

    def holds(self, count: int, width: int) -> bool:
        """Return whether a pass may have so many completions of so many tokens."""
        return count <= self.completions if self.tokens is None else count * width <= self.tokens


def blocks(
    mini_batch: Batch,
    groups: Sequence[int],
    group_size: int,
    size: PassSize,
    *,
    processes: int = 1,
    process: int = 0,
    least: int = 0,
    alike: bool = False,
) -> list[Block]:
    """Return the blocks of one process, which have as many passes as those of any other.

    Groups are divided among processes. Where part of a group is enough for each, one torn block
    divides the completions.

    Args:
        groups: those of the mini-batch to be run.
        least: passes to make even if there is nothing to run.
        alike: put prompts of one length only into a block, unless it is torn.
    """
    widths = group_widths(mini_batch, group_size)
    costs = [sum(width) for width in widths]

    def block(some: Sequence[int], weight: int) -> Batch:
        piece = take(mini_batch, some, group_size, size.packs)
        return with_shares(piece, mini_batch, weight) | {"one_prompt": torch.tensor(group_size)}

    part = part_of_group(len(groups), group_size, processes)
    if groups and part < group_size:
        everyones = [[passes] for passes in torn(block(groups, 1), part, processes, size)]
    else:
        shares = share_out(groups, costs, processes)
        plans = [plan(share, widths, group_size, size, alike) for share in shares]
        everyones = [[divided(block(some, processes), size) for some in plan] for plan in plans]
    counts = [sum(map(len, those)) for those in everyones]
    idle = without_weight(take(mini_batch, [costs.index(min(costs))], group_size, trim=True))
    return everyones[process] + [[idle]] * (max(least, *counts) - counts[process])


def own_part(piece: Batch) -> Batch:
    """Return what a process runs of a pass: all of it, or its own rows."""
    if "own_rows" not in piece:
        return piece
    seen = {name: piece[name] for name in OWN if name in piece}
    own = rows(seen, piece["own_rows"])
    return trimmed(own) if "is_last" in piece else own


# Blocks -------------------------------------------------------------------------------------------


def plan(
    groups: Sequence[int],
    widths: Sequence[tuple[int, int]],
    group_size: int,
    size: PassSize,
    alike: bool,
) -> list[list[int]]:
    """Return the groups of each block of a process: one pass, or a group that is too large."""
    if size.tokens is not None:
        return pack(groups, widths, group_size, size.tokens, alike)
    count = 1 if alike else max(1, size.completions // group_size)
    return [list(groups[i : i + count]) for i in range(0, len(groups), count)]


def part_of_group(groups: int, group_size: int, processes: int) -> int:
    """Return how many completions of one group each process has to run, so that all are run.

    The number divides group_size, so that a process has one prompt. It is group_size where groups
    are not torn.
    """
    least = max(1, -(-groups * group_size // processes))
    return next((part for part in range(least, group_size) if group_size % part == 0), group_size)


def share_out(groups: Sequence[int], costs: Sequence[int], processes: int) -> list[list[int]]:
    """Divide groups among processes, so that the costs of all are about equal.

    The most expensive group goes to the process with the least so far, and so on. `costs` are of
    every group, indexed by it.
    """
    shares: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for group in sorted(groups, key=lambda g: (-costs[g], g)):
        least = loads.index(min(loads))
        shares[least].append(group)
        loads[least] += costs[group]
    return [sorted(share) for share in shares]


def pack(
    groups: Sequence[int],
    widths: Sequence[tuple[int, int]],
    group_size: int,
    budget: int,
    alike: bool,
) -> list[list[int]]:
    """Return blocks of groups of like length, each of at most `budget` padded tokens or one group.

    A block is as wide as its longest prompt and its longest completion together.

    Args:
        alike: put prompts of one length only into a block.
    """
    packed: list[list[int]] = []
    prompt = completion = 0
    for group in sorted(groups, key=lambda g: (alike * widths[g][0], -sum(widths[g]), g)):
        wider = (max(prompt, widths[group][0]), max(completion, widths[group][1]))
        fits = not alike or widths[group][0] == prompt
        if packed and fits and (len(packed[-1]) + 1) * group_size * sum(wider) <= budget:
            packed[-1].append(group)
            prompt, completion = wider
        else:
            packed.append([group])
            prompt, completion = widths[group]
    return packed


def with_shares(piece: Batch, mini_batch: Batch, processes: int) -> Batch:
    """Add `sequence_share` and `token_share`, 0-d: the part of its mini-batch that a block is.

    They are parts of the mini-batch's completions and tokens, times the number of processes, whose
    gradients are averaged. Losses that are means over a block, times its share, sum to the mean
    over the mini-batch. What was left out contributes nothing, and makes no other count for more.
    """
    tokens = learned(piece).sum() / learned(mini_batch).sum().clamp(min=1)
    part = len(piece["completion_ids"]) / len(mini_batch["completion_ids"])
    return piece | {
        "sequence_share": torch.tensor(part * processes, device=tokens.device),
        "token_share": tokens * processes,
    }


def without_weight(piece: Batch) -> Batch:
    """Return a pass that contributes nothing, for a process that must take part in the others'."""
    zero = torch.zeros((), device=piece["completion_ids"].device)
    none = torch.zeros_like(piece["completion_mask"])
    return piece | {"sequence_share": zero, "token_share": zero, "completion_mask": none}


# Passes -------------------------------------------------------------------------------------------


def divided(block: Batch, size: PassSize) -> Block:
    """Return the passes of a block that one process runs."""
    every = range(len(block["completion_ids"]))
    passes = divide(block, every, size)
    return [block] if len(passes) == 1 else with_own_rows(block, passes, weight=1)


def torn(block: Batch, part: int, processes: int, size: PassSize) -> list[Block]:
    """Return the passes of each process of a block that they divide.

    A process runs `part` rows, in one pass if the rows of every process are within the size. Where
    none are left it runs the last, which does not count.
    """
    whole = [tear(block, part, process, processes) for process in range(processes)]
    passes = [divide(block, sorted({*piece["own_rows"].tolist()}), size) for piece in whole]
    if max(map(len, passes)) == 1:
        return [[piece] for piece in whole]
    weights = [int(piece["own_weight"]) for piece in whole]
    return [with_own_rows(block, *own) for own in zip(passes, weights, strict=True)]


def tear(block: Batch, part: int, process: int, processes: int) -> Batch:
    """Return a pass of `part` rows of a block, a process's. Where none are left it is the last."""
    last, first = len(block["completion_ids"]) - 1, process * part
    device = block["completion_ids"].device
    return block | {
        "own_rows": torch.arange(first, first + part, device=device).clamp(max=last),
        "own_weight": torch.tensor(processes if first <= last else 0, device=device),
    }


def divide(block: Batch, own: Sequence[int], size: PassSize) -> list[list[int]]:
    """Return which of these rows of a block share a pass: all, if a pass holds them.

    Else they are packed, the longest first, or stay in order.
    """
    lengths = block["completion_mask"].sum(1).tolist()
    prompt = int(block["prompt_mask"].sum(1).max())
    if size.holds(len(own), prompt + max(lengths[row] for row in own)):
        return [list(own)]
    passes: list[list[int]] = []
    for row in sorted(own, key=lambda row: -lengths[row] if size.packs else row):
        if passes and size.holds(len(passes[-1]) + 1, prompt + lengths[passes[-1][0]]):
            passes[-1].append(row)
        else:
            passes.append([row])
    return passes


def with_own_rows(block: Batch, passes: list[list[int]], weight: int) -> Block:
    """Return the passes of a block that run these rows."""
    device = block["completion_ids"].device
    return [
        block
        | {
            "own_rows": torch.tensor(rows, device=device),
            "own_weight": torch.tensor(weight, device=device),
            "is_last": torch.tensor(number == len(passes)),
            "one_prompt": torch.tensor(len(rows)),
        }
        for number, rows in enumerate(passes, 1)
    ]
