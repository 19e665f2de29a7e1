"""The process of test_memory.py whose memory is limited, and more so after some steps."""

import ctypes
import gc
import resource
import sys
from pathlib import Path

import psutil
import torch

from rapid.training.trl import without_vllm

without_vllm()

from tests.training import loops  # noqa: E402

MORE, LESS = 700 * 2**20, 60 * 2**20  # bytes beside what the process has before it trains
SIZES = {"n_step": 32, "H": 2, "max_steps": 4, "max_completion_length": 1024}
SIZES |= {"learning_rate": 5e-5}


class LongTrainer(loops.ScriptedTrainer):
    """Its completions have 478 to 1024 tokens."""

    def _generate_single_turn(self, prompt_ids, *others):
        completions, logps = super()._generate_single_turn(prompt_ids, *others)
        return [(ids * 1024)[: 400 + 78 * len(ids)] for ids in completions], logps


def build(model: Path, folder: Path, kind=LongTrainer, **settings):
    return loops.build(model, folder, "rapid", trainer=kind, **SIZES | settings)


def limit_memory(more: int) -> None:
    """Let this process take so much more address space than it has."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(
        0
    )  # what the process has and does not use is not available either
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))


def main(model: Path, folder: Path, saved: Path) -> None:
    halvings = []

    class Limited(LongTrainer):
        def training_step(self, *arguments):
            loss = super().training_step(*arguments)
            halvings.append(self.halvings)
            if len(halvings) == 2:
                limit_memory(LESS)
            return loss

    trainer = build(model, folder, Limited, token_budget="auto")
    limit_memory(MORE)
    trainer.train()
    result = {"completions": trainer.micro_batch_limit.completions, "halvings": halvings}
    torch.save(result | {"weights": loops.weights(trainer)}, saved)
    print(result)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
