"""Worker process of test_processes.py: trains the toy model once for each entry of a JSON file.

Each process writes, for each entry, its final weights and what its steps logged.
"""

import gc
import json
import logging
import sys
from pathlib import Path

import torch

from rapid.training.trl import prevent_vllm_import

prevent_vllm_import()

from rapid import RapidTrainer  # noqa: E402
from rapid.stages.train_process import disable_shared_memory_extension  # noqa: E402
from rapid.training import overview  # noqa: E402
from rapid.training.micro_batches import select_local  # noqa: E402
from tests.training.loops import ScriptedTrainer, build_rapid_trainer, get_weights  # noqa: E402


def record_rows(trainer) -> list[list[int]]:
    """Return a list that collects, for each optimizer step, the size of each micro-batch.

    A dummy micro-batch, which a process runs while others have real ones, has size 0.
    """
    steps: list[list[int]] = []
    training_step, compute_loss = trainer.training_step, trainer.compute_loss

    def count_step(*args):
        steps.append([])
        return training_step(*args)

    def count_loss(model, inputs, *args, **kwargs):
        rows = select_local(inputs)["completion_ids"]
        if model.training:
            steps[-1].append(len(rows) if inputs["sequence_share"] else 0)
        return compute_loss(model, inputs, *args, **kwargs)

    trainer.training_step, trainer.compute_loss = count_step, count_loss
    return steps


def record_overview() -> list[str]:
    """Return a list that collects what the overview of a run logs in this process."""
    messages: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    overview.logger.setLevel(logging.INFO)
    overview.logger.addHandler(Collect())
    return messages


def main(entries_file: Path, model: Path, out: Path) -> None:
    messages = record_overview()
    for name, settings in json.loads(entries_file.read_text()).items():
        trainer_class = ScriptedTrainer if settings.pop("scripted", True) else RapidTrainer
        eval_prompts, resumed_from = settings.pop("evaluated", 0), settings.pop("resumed", None)
        trainer = build_rapid_trainer(
            model, out / name, trainer_class=trainer_class, dtype=torch.float32, **settings
        )
        rows = record_rows(trainer)
        messages.clear()
        trainer.train(resumed_from and str(out / resumed_from))
        prompts = trainer.train_dataset.select(range(eval_prompts))
        process = trainer.accelerator.process_index
        torch.save(
            {
                "weights": get_weights(trainer),
                "log": [row for row in trainer.state.log_history if "rapid/run" in row],
                "rows": rows,
                "overview": [*messages],
                "evaluation": trainer.evaluate(prompts) if eval_prompts else {},
                "completions": trainer.completions_sampled,
                "processes": trainer.accelerator.num_processes,
            },
            out / f"{name}.{process}.pt",
        )
        print(name, process, "done", flush=True)


if __name__ == "__main__":
    gc.freeze()  # Trainer asks for a collection in every run
    disable_shared_memory_extension()
    main(*map(Path, sys.argv[1:]))
