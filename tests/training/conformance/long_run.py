"""Print the memory of a long run: `python -m tests.training.conformance.long_run MODEL STEPS`.

MODEL is the folder of a small model. Each line is JSON: the optimizer step, and the process's
anonymous memory in kilobytes, without mapped files.
"""

import gc
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from rapid.training.trl import prevent_vllm_import

prevent_vllm_import()

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402

from rapid import RapidConfig, RapidTrainer  # noqa: E402
from tests.training.loops import COMMON, text_sum_reward  # noqa: E402

ROWS, TEXT = 1000, "x" * 20_000  # a dataset on disk; a step uses two rows
REPORTS = 10


class MemoryPrinter(TrainerCallback):
    """Print the memory in use, REPORTS times in a run."""

    def on_step_end(self, args, state, control, **_):
        if state.global_step % (state.max_steps // REPORTS) == 0:
            gc.collect()
            status = Path("/proc/self/status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
            print(json.dumps({"step": state.global_step, "kilobytes": kilobytes}), flush=True)


def generate_rows() -> Iterator[dict]:
    for number in range(ROWS):
        yield {"prompt": str(number), "text": TEXT}


def main(model: str, steps: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"n_step": 4, "H": 4, "num_generations": 2, "max_completion_length": 3}
        schedule = {"max_steps": steps, "logging_steps": 50, "learning_rate": 0.01}
        RapidTrainer(
            AutoModelForCausalLM.from_pretrained(model),
            text_sum_reward,
            RapidConfig(folder, **COMMON | sizes | schedule),
            Dataset.from_generator(generate_rows, cache_dir=folder),
            None,
            AutoTokenizer.from_pretrained(model, padding_side="left"),
            callbacks=[MemoryPrinter()],
        ).train()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
