"""One of the processes of test_processes.py: loops on the toy model, from JSON to tensors.

Each process writes, for each loop, its final weights and what its steps logged.
"""

import gc
import json
import sys
from pathlib import Path

import torch

from rapid.training.trl import without_vllm

without_vllm()

from rapid import RapidTrainer  # noqa: E402
from rapid.stages.train_process import without_shared_memory  # noqa: E402
from rapid.training.micro_batches import select_local  # noqa: E402
from tests.training.loops import ScriptedTrainer, build, weights  # noqa: E402


def count_rows(trainer) -> list[list[int]]:
    """Collects, for each optimizer step, the completions of each micro-batch."""
    steps: list[list[int]] = []
    step, loss = trainer.training_step, trainer.compute_loss

    def watched_step(*args):
        steps.append([])
        return step(*args)

    def watched_loss(model, inputs, *others, **named):
        rows = select_local(inputs)["completion_ids"]
        if model.training:
            steps[-1].append(len(rows) if inputs["sequence_share"] else 0)
        return loss(model, inputs, *others, **named)

    trainer.training_step, trainer.compute_loss = watched_step, watched_loss
    return steps


def main(loops: Path, model: Path, out: Path) -> None:
    for name, settings in json.loads(loops.read_text()).items():
        kind = ScriptedTrainer if settings.pop("scripted", True) else RapidTrainer
        evaluated, resumed = settings.pop("evaluated", 0), settings.pop("resumed", None)
        trainer = build(model, out / name, trainer=kind, dtype=torch.float32, **settings)
        rows = count_rows(trainer)
        trainer.train(resumed and str(out / resumed))
        prompts = trainer.train_dataset.select(range(evaluated))
        process = trainer.accelerator.process_index
        torch.save(
            {
                "weights": weights(trainer),
                "log": [row for row in trainer.state.log_history if "rapid/run" in row],
                "rows": rows,
                "evaluation": trainer.evaluate(prompts) if evaluated else {},
                "completions": trainer.completions_sampled,
                "processes": trainer.accelerator.num_processes,
            },
            out / f"{name}.{process}.pt",
        )
        print(name, process, "done", flush=True)


if __name__ == "__main__":
    gc.freeze()  # Trainer asks for a collection in every run
    without_shared_memory()
    main(*map(Path, sys.argv[1:]))
