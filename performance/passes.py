"""`python -m performance.passes`: memory and seconds of small passes, beside GRPOTrainer's.

Both trainers take optimizer steps on the same given completions, each row in fresh processes: the
least model whose vocabulary is Qwen2.5's, so that logits are what counts. Memory is the peak of
resident memory, less what the process had with the model loaded. A second table has the seconds of
steps of Qwen2.5-0.5B's shape, with logits in chunks and with whole logits, in turns.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from operator import truediv
from pathlib import Path

from performance import results
from performance.held import PROMPT, common_arguments, made_model, made_tokenizer
from rapid.artifacts.files import write_json
from rapid.cost.shapes import Shape, published
from rapid.text import markdown
from rapid.training.trl import without_vllm

NAME = "passes.json"
VOCABULARY = 151_936
SMALL = Shape(2, 128, 256, 2, 2, 64, VOCABULARY, True)
SIZES = [(4, 4), (8, 2), (8, 1)]  # completions of a prompt, and of a pass
LENGTHS = (512, 2048)
REPEATS = 3


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m performance.passes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--out", type=Path, default=results.FOLDER / NAME, help="file of the figures (%(default)s)")
    add("--print", action="store_true", help="print the figures that the file has")
    add("--resume", action="store_true", help="measure what the file does not have yet")
    options = parser.parse_args(arguments)
    if not options.print:
        measure_all(options.out, options.resume)
    document = json.loads(options.out.read_text(encoding="utf-8"))
    print(memory_table(document["memory"]), seconds_table(document["seconds"]), sep="\n")
    return 0


def measure_all(path: Path, resume: bool) -> None:
    """Measure, and write the figures into a file after each row.

    Args:
        resume: keep the rows that the file has.
    """
    document = {"hardware": results.hardware_in_child(), "memory": [], "seconds": []}
    if resume and path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
    tables = (("seconds", seconds_rows(), seconds_table), ("memory", memory_rows(), memory_table))
    for name, rows, table in tables:
        for labels, measure in rows:
            if any(labels.items() <= row.items() for row in document[name]):
                continue
            row = {**labels, **measure(), "commit": results.COMMIT}
            document[name].append(row)
            print(table([row]), flush=True)
            write_json(path, document)


def seconds_rows() -> Iterator[tuple[dict, Callable[[], dict]]]:
    """Yield the labels of each row of the second table, and what measures it."""
    for precision in ("float32", "bfloat16"):
        yield {"precision": precision}, partial(in_fresh_process, step_seconds, precision)


def memory_rows() -> Iterator[tuple[dict, Callable[[], dict]]]:
    """Yield the labels of each row of the first table, and what measures it."""
    for length in LENGTHS:
        for group, of_a_pass in SIZES:
            labels = {"length": length, "group": group, "pass": of_a_pass}
            yield labels, partial(both_peaks, length, group, of_a_pass)


def both_peaks(length: int, group: int, of_a_pass: int) -> dict[str, float]:
    """Return the peak of each trainer, 1e6 bytes."""
    sides = ("trl", "rapid")
    return {s: in_fresh_process(step_memory, s, length, group, of_a_pass) for s in sides}


def in_fresh_process(work, *arguments):
    """Return what some work returns in a process that has held nothing else."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=without_vllm) as fresh:
        return fresh.submit(work, *arguments).result()


def memory_table(rows: list[dict]) -> str:
    """Return peaks in 1e6 bytes."""
    head = ["Tokens", "Group", "Pass", "GRPOTrainer", "RapidTrainer", "Ratio"]
    return markdown(head, [
        [
            f"{row['length']:,}", str(row["group"]), str(row["pass"]),
            f"{row['trl']:,.0f} MB", f"{row['rapid']:,.0f} MB", f"{row['rapid'] / row['trl']:.2f}",
        ]
        for row in rows
    ])  # fmt: skip


def seconds_table(rows: list[dict]) -> str:
    """Return medians of steps' seconds."""
    head = ["Precision", "Whole logits", "Chunks", "Ratio of pairs"]
    return markdown(head, [
        [
            row["precision"], f"{statistics.median(row['whole']):.1f} s",
            f"{statistics.median(row['chunks']):.1f} s",
            f"{statistics.median(map(truediv, row['chunks'], row['whole'])):.2f}",
        ]
        for row in rows
    ])  # fmt: skip


# In a process of its own --------------------------------------------------------------------------


def trainer_of(
    side: str, shape: Shape, length: int, group: int, of_a_pass: int, bf16: bool = False
):
    """Return a trainer whose completions are given, all of one length, half of them rewarded."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from rapid import RapidConfig, RapidTrainer

    torch.set_num_threads(2)

    class GivenCompletions:
        def _generate_single_turn(self, prompt_ids, *_, **__):
            count = len(prompt_ids)
            return [[2 + (row + n) % 1000 for n in range(length)] for row in range(count)], None

    class Grpo(GivenCompletions, GRPOTrainer):
        pass

    class Rapid(GivenCompletions, RapidTrainer):
        pass

    shared = {
        **common_arguments(False, bf16),
        "num_generations": group,
        "max_completion_length": length,
        "per_device_train_batch_size": of_a_pass,
        "gradient_accumulation_steps": group // of_a_pass,
    }
    kind, config = (Grpo, GRPOConfig) if side == "trl" else (Rapid, RapidConfig)
    own = {"steps_per_generation": 2 * group // of_a_pass, "beta": 0.0}
    own |= {} if side == "trl" else {"objective": "rapid", "skip_zero_groups": False}
    prompts = [" ".join(f"w{(i + n) % 1000}" for n in range(PROMPT)) for i in range(2)]
    return kind(
        made_model("Qwen2.5", shape),
        lambda completions, **_: [float(i % 2) for i in range(len(completions))],
        args=config(**shared | own),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=made_tokenizer(),
    )


def step_memory(side: str, length: int, group: int, of_a_pass: int) -> float:
    """Return the peak of two optimizer steps on one inference batch, 1e6 bytes."""
    from performance.memory import resident_mb

    trainer = trainer_of(side, SMALL, length, group, of_a_pass)
    before = resident_mb("VmRSS")
    trainer.train()
    return resident_mb("VmHWM") - before


def step_seconds(precision: str) -> dict[str, list[float]]:
    """Return the seconds of passes forward and backward, with whole logits and in chunks."""
    import torch

    from rapid.training import forward

    shape = published()["Qwen2.5-0.5B"]
    trainer = trainer_of("rapid", shape, 512, 2, 1, precision == "bfloat16")
    seconds: dict[str, list[float]] = {"whole": [], "chunks": []}
    parameters = [*trainer.model.parameters()]
    ids = torch.arange(2, 514)[None]
    prompt = torch.arange(2, 2 + PROMPT)[None]
    piece = {"prompt_ids": prompt, "prompt_mask": torch.ones_like(prompt)}
    piece |= {"completion_ids": ids, "completion_mask": torch.ones_like(ids)}
    trainer.model.train()
    for number in range(REPEATS + 1):
        for name, limit in (("whole", 2**40), ("chunks", 0)):
            forward.WHOLE_LOGITS = limit
            began = time.perf_counter()
            with trainer.accelerator.autocast():
                logp, _ = trainer._completion_logp(trainer.model, piece, 1, True)
            torch.autograd.grad(logp.sum(), parameters)
            if number:  # the first warms up
                seconds[name].append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
