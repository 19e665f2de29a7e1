"""Memory of training steps, on completions that are made up.

    python -m performance.steps held      compared with `rapid plan`: results/held.jsonl
    python -m performance.steps memory    small micro-batches of both trainers: results/passes.json

Models have published shapes and random weights, some of them with fewer layers. Each row is two
optimizer steps in a fresh process. On a CPU its figure is the peak of resident memory, less what
the process had before it made the model (held) or with the model loaded (memory).
"""

import json
from argparse import RawDescriptionHelpFormatter
from dataclasses import replace
from itertools import product
from operator import truediv
from pathlib import Path
from statistics import median

from performance import results
from performance.memory import call_in_fresh_process, train
from performance.models import build_untrained
from performance.parts import TABLE, Setting
from rapid.arguments import Parser
from rapid.artifacts.files import write_json, write_text
from rapid.cost.memory import training_memory
from rapid.cost.shapes import Shape, published
from rapid.text import render_markdown_table

HELD, PASSES = results.FOLDER / "held.jsonl", results.FOLDER / "passes.json"
PROMPT, WORDS = 64, 1002  # tokens of a prompt, and of the tokenizer
SMALL = Shape(2, 128, 256, 2, 2, 64, 151_936, True)  # logits are most of what its passes hold


def list_labels(table: str, gpu: bool) -> list[dict]:
    """Return the labels of a table's rows, on a GPU or on a CPU."""
    rows = TABLE["steps"][table]["rows"]
    if table == "memory":
        return rows
    return [
        {
            "model": model,
            "layers": published()[model].layers if gpu else layers,
            **row,
            "precision": "bfloat16" if gpu and row["kind"] == "rl" else "float32",
            "device": "gpu" if gpu else "cpu",
        }
        for row, (model, layers) in product(rows, TABLE["steps"]["held"]["layers"].items())
    ]


def measure_held(labels: dict) -> dict:
    """Return the bytes that a row of two passes a step holds at most."""
    side = "rapid" if labels["kind"] == "rl" else labels["kind"]
    shape = replace(published()[labels["model"]], layers=labels["layers"])
    sizes = _train(
        side,
        labels["model"],
        shape,
        group=2 * labels["completions"],
        micro_batch=labels["completions"],
        length=labels["length"],
        checkpointing=labels["checkpointing"],
        bf16=labels["precision"] == "bfloat16",
    )
    held = 1e6 * (sizes["peak"] - sizes["empty"])
    return {"held": held, "hardware": results.hardware_in_child()}


def measure_memory(labels: dict) -> dict:
    """Return the peak of each trainer, 1e6 bytes."""
    setting = {"group": labels["group"], "micro_batch": labels["pass"], "length": labels["length"]}
    stock, rapid = (_train(side, "small", SMALL, **setting) for side in ("stock", "rapid"))
    return {"trl": stock["peak"] - stock["before"], "rapid": rapid["peak"] - rapid["before"]}


def _train(side: str, name: str, shape: Shape, *, group: int, **setting) -> dict[str, float]:
    """Return the memory of two steps with a group each, 1e6 bytes."""
    workload = build_untrained(name, shape, words=WORDS, lengths=(PROMPT, PROMPT))
    scripted = Setting(H=2, n_step=group, group=group, scripted=True, **setting)
    return call_in_fresh_process(train, side, workload, scripted, 1, 0.5)


MEASURES = {"held": (HELD, measure_held), "memory": (PASSES, measure_memory)}


def render_table(name: str, rows: list[dict]) -> str:
    """Return a table with the columns that parts.yaml declares."""
    columns = TABLE["steps"][name]["columns"]
    values = [row | _derive_values(name, row) for row in rows]
    cells = [[form.format(**row) for form in columns.values()] for row in values]
    return render_markdown_table(list(columns), cells)


def _derive_values(name: str, row: dict) -> dict:
    """Return the values of a row's columns that follow from its labels and figures."""
    if name == "memory":
        return {"ratio": row["rapid"] / row["trl"]}
    if name == "seconds":
        medians = {f"median_{side}": median(row[side]) for side in ("whole", "chunks")}
        return medians | {"ratio": median(map(truediv, row["chunks"], row["whole"]))}
    shape, tokens = published()[row["model"]], PROMPT + row["length"]
    planned = training_memory(
        replace(shape, layers=row["layers"]),
        precision=row["precision"],
        tokens=tokens,
        completions=row["completions"],
        on_gpu=row["device"] == "gpu",
        checkpointing=row["checkpointing"],
    ).total
    cut = row["layers"] != shape.layers
    return {
        "of_layers": f", {row['layers']} of {shape.layers} layers" if cut else "",
        "device_name": row["device"].upper(),
        "step": row["kind"].upper(),
        "tokens": tokens,
        "on_or_off": "on" if row["checkpointing"] else "off",
        "held_gb": row["held"] / 1e9,
        "planned_gb": planned / 1e9,
        "ratio": planned / row["held"],
    }


def read_tables(path: Path) -> dict[str, list[dict]]:
    """Return the rows of each table in a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return {"held": [json.loads(line) for line in text.splitlines()]}
    return json.loads(text)


def write_tables(path: Path, tables: dict[str, list[dict]]) -> None:
    """Write the rows of each table into a file."""
    if path.suffix == ".jsonl":
        write_text(path, "".join(json.dumps(row) + "\n" for row in tables["held"]))
    else:
        write_json(path, tables | {"hardware": results.hardware_in_child()})


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="python -m performance.steps", description=__doc__)
    parser.formatter_class = RawDescriptionHelpFormatter
    add = parser.add_argument
    add("table", choices=[*MEASURES], help="what to measure")
    add("--out", type=Path, help="file to write the figures to (default: the one in results/)")
    add("--only", default="", help="only rows with this in their labels, such as a model's name")
    add("--resume", action="store_true", help="measure only what the file does not contain yet")
    options = parser.parse_args(arguments)
    default, measure = MEASURES[options.table]
    path = options.out or default
    tables = read_tables(path) if path.exists() else {options.table: []}
    results.hardware_in_child()  # forks, which a process that has looked for a GPU cannot
    import torch

    for labels in list_labels(options.table, torch.cuda.is_available()):
        rows = tables[options.table]
        earlier = [row for row in rows if labels.items() <= row.items()]
        if options.only not in str(labels) or (options.resume and earlier):
            continue
        row = labels | measure(labels) | {"commit": results.COMMIT}
        tables[options.table] = [row for row in rows if row not in earlier] + [row]
        write_tables(path, tables)
        print(render_table(options.table, [row]), flush=True)


if __name__ == "__main__":
    main()
