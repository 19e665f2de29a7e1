"""Worker process of test_memory.py: trains under a memory limit that is lowered after two steps.

The memory of a step depends on the version of torch. So the limit is halved until it is too low.
"""

import ctypes
import gc
import resource
import sys
from pathlib import Path

import psutil
import torch

from rapid.training.trl import prevent_vllm_import

prevent_vllm_import()

from tests.training import loops  # noqa: E402

FIRST_LIMIT, LOWERED_LIMIT = 700 * 2**20, 120 * 2**20  # bytes beyond what the process already uses
SIZES = {"n_step": 32, "H": 2, "max_steps": 6, "max_completion_length": 1024}
SIZES |= {"learning_rate": 5e-5}


class LongTrainer(loops.ScriptedTrainer):
    """Samples completions of 478 to 1024 tokens."""

    def _generate_single_turn(self, prompt_ids, *args):
        completions, logps = super()._generate_single_turn(prompt_ids, *args)
        return [(ids * 1024)[: 400 + 78 * len(ids)] for ids in completions], logps


def build_limited_trainer(model: Path, folder: Path, trainer_class=LongTrainer, **settings):
    return loops.build_rapid_trainer(
        model, folder, "rapid", trainer_class=trainer_class, **SIZES | settings
    )


def limit_memory(extra_bytes: int) -> None:
    """Limit this process's address space to what it uses now and `extra_bytes`."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that is held but unused counts as used
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + extra_bytes, resource.RLIM_INFINITY))


def main(model: Path, folder: Path, output_file: Path) -> None:
    halvings = []

    class LimitedTrainer(LongTrainer):
        def training_step(self, *arguments):
            loss = super().training_step(*arguments)
            halvings.append(self.halvings)
            later_steps = len(halvings) - 2
            if later_steps >= 0 and halvings[1] == halvings[-1]:
                limit_memory(LOWERED_LIMIT >> later_steps)
            return loss

    trainer = build_limited_trainer(model, folder, LimitedTrainer, token_budget="auto")
    limit_memory(FIRST_LIMIT)
    trainer.train()
    result = {"completions": trainer.micro_batch_limit.completions, "halvings": halvings}
    torch.save(result | {"weights": loops.get_weights(trainer)}, output_file)
    print(result)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
