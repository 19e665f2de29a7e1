"""`python -m performance.held`: the memory that a training step takes, beside what the plan says.

Models have published shapes and random weights, some of them with fewer layers. Each row is two
optimizer steps in a fresh process: of RapidTrainer on completions that are given, none sampled, or
of supervised fine-tuning. On a CPU the figure is the peak of resident memory, less what the process
had before it made the model; on a GPU it is the peak of what tensors held.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from performance import results
from rapid.algorithms import IMITATING
from rapid.artifacts.files import write_text
from rapid.cost.memory import training_memory
from rapid.cost.shapes import Shape, published
from rapid.training.trl import without_vllm

NAME = "held.jsonl"
PROMPT = 64  # tokens
# Of models that are measured on a CPU, where a whole one of more than a billion takes hours.
LAYERS = {"Qwen2.5-0.5B": 24, "Qwen2.5-1.5B": 3, "Llama-3.2-1B": 3, "Gemma-3-1B": 3}
HEAD = ["Model", "Step", "Pass", "Precision", "Checkpointing", "Held", "Planned", "Ratio"]
CONFIGS = {"Qwen2.5": "Qwen2Config", "Llama": "LlamaConfig", "Gemma": "Gemma3TextConfig"}


@dataclass(frozen=True)
class Row:
    """A training step to be measured."""

    model: str  # as in rapid/cost/models.yaml
    layers: int
    kind: str  # rl, or the name of what imitates
    completions: int  # of a pass; a step has two passes
    length: int  # tokens of a completion, or of a demonstration without its prompt
    checkpointing: bool = False
    precision: str = "float32"

    @property
    def shape(self) -> Shape:
        """The model's sizes."""
        return replace(published()[self.model], layers=self.layers)


def rows_for(gpu: bool) -> list[Row]:
    """Return the rows that are measured on a CPU, or on a GPU."""
    kinds = [
        ("rl", 2, 512, False),
        (IMITATING.name, 1, 2048, False) if gpu else (IMITATING.name, 2, 512, False),
        ("rl", 1, 2048, False),
        (IMITATING.name, 1, 2048, True),
        ("rl", 2, 512, True),
    ]
    return [
        Row(
            model,
            published()[model].layers if gpu else few,
            kind,
            completions,
            length,
            checkpointing,
            "bfloat16" if gpu and kind == "rl" else "float32",
        )
        for kind, completions, length, checkpointing in kinds
        for model, few in LAYERS.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m performance.held", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--out", type=Path, default=results.FOLDER / NAME, help="file of the figures (%(default)s)")
    add("--only", default="", help="rows of models whose name has this in it")
    add("--print", action="store_true", help="print the figures that the file has")
    options = parser.parse_args(arguments)
    if options.print:
        print(table(read(options.out)))
        return 0
    without_vllm()
    import torch

    source = {"commit": results.COMMIT, "hardware": results.hardware_in_child()}
    gpu = torch.cuda.is_available()  # a process that has looked for it cannot be forked
    measured = {} if not options.out.exists() else {key(row): row for row in read(options.out)}
    context = multiprocessing.get_context("spawn")
    asked = [row for row in rows_for(gpu) if options.only in row.model]
    for number, row in enumerate(asked, 1):
        print(f"held: {number} of {len(asked)}: {row}", file=sys.stderr, flush=True)
        with ProcessPoolExecutor(1, context, initializer=without_vllm) as fresh:
            held = fresh.submit(measure, row).result()
        line = {**asdict(row), "device": "gpu" if gpu else "cpu", "held": held, **source}
        measured[key(line)] = line
        text = "".join(json.dumps(line) + "\n" for line in measured.values())
        write_text(options.out, text)
        print(table([line]), flush=True)
    return 0


def read(path: Path) -> list[dict]:
    """Return what was measured."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def key(line: dict) -> str:
    """Return what a row was of."""
    return json.dumps([line["device"], *(line[name] for name in Row.__dataclass_fields__)])


def planned(line: dict) -> float:
    """Return the bytes that the plan has for a row."""
    row = Row(**{name: line[name] for name in Row.__dataclass_fields__})
    memory = training_memory(
        row.shape,
        precision=row.precision,
        tokens=PROMPT + row.length,
        completions=row.completions,
        on_gpu=line["device"] == "gpu",
        checkpointing=row.checkpointing,
    )
    return memory.total


def table(lines: list[dict]) -> str:
    """Return a table of what was held, and planned, in 1e9 bytes."""
    from rapid.text import markdown

    body = []
    for line in lines:
        layers, whole = line["layers"], published()[line["model"]].layers
        model = line["model"] + ("" if layers == whole else f", {layers} of {whole} layers")
        held, plan = line["held"] / 1e9, planned(line) / 1e9
        body.append([
            f"{model} ({line['device'].upper()})", line["kind"].upper(),
            f"{line['completions']} x {PROMPT + line['length']:,}", line["precision"],
            "on" if line["checkpointing"] else "off",
            f"{held:.1f} GB", f"{plan:.1f} GB", f"{plan / held:.2f}",
        ])  # fmt: skip
    return markdown(HEAD, body)


# In a process of its own --------------------------------------------------------------------------


def measure(row: Row) -> float:
    """Return the bytes that two optimizer steps hold at most."""
    import torch

    import rapid.training.sft
    import rapid.training.trainer  # noqa: F401 - what they import is no part of the figure
    from performance.memory import resident_mb

    made_model(
        row.model, replace(row.shape, layers=1)
    )  # nor is what transformers imports for a model
    gpu = torch.cuda.is_available()
    train = _imitate if row.kind == IMITATING.name else _reinforce
    if not gpu:
        torch.set_num_threads(2)
    before = resident_mb("VmRSS") * 1e6
    train(row, gpu)
    if gpu:
        return float(torch.cuda.max_memory_allocated())
    return resident_mb("VmHWM") * 1e6 - before


def made_model(family: str, shape: Shape) -> Any:
    """Return a model of this shape with random weights, in float32.

    Args:
        family: the start of a name in `CONFIGS`.
    """
    import torch
    import transformers

    name = next(name for start, name in CONFIGS.items() if family.startswith(start))
    config = getattr(transformers, name)(
        num_hidden_layers=shape.layers, hidden_size=shape.hidden,
        intermediate_size=shape.intermediate, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def made_tokenizer() -> Any:
    """Return a tokenizer of a thousand words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", *(f"w{number}" for number in range(1000))]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")


def common_arguments(gpu: bool, bf16: bool, checkpointing: bool = False) -> dict[str, Any]:
    """Return arguments of every trainer that takes two steps and leaves nothing."""
    return {
        "output_dir": tempfile.gettempdir(), "seed": 0, "max_steps": 2, "save_strategy": "no",
        "report_to": [], "disable_tqdm": True, "gradient_checkpointing": checkpointing,
        "bf16": bf16, "use_cpu": not gpu, "learning_rate": 1e-6,
        "dataloader_pin_memory": gpu, "logging_steps": 1,
    }  # fmt: skip


def _reinforce(row: Row, gpu: bool) -> None:
    """Train on given completions in groups of four, passes of which are smaller or not."""
    from datasets import Dataset

    from rapid import RapidConfig, RapidTrainer

    group = 2 * row.completions

    class GivenCompletions(RapidTrainer):
        def _generate_single_turn(self, prompt_ids, *_):
            ids = [
                [2 + (number + n) % 1000 for n in range(length)]
                for number in range(len(prompt_ids))
            ]
            return ids, None

    length = row.length
    config = RapidConfig(
        **common_arguments(gpu, row.precision == "bfloat16", row.checkpointing),
        H=2, n_step=group, num_generations=group,
        micro_batch_size=row.completions, max_completion_length=length, skip_zero_groups=False,
    )  # fmt: skip
    prompts = [" ".join(f"w{(i + n) % 1000}" for n in range(PROMPT)) for i in range(2)]
    GivenCompletions(
        made_model(row.model, row.shape),
        lambda completions, **_: [float(i % 2) for i in range(len(completions))],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=made_tokenizer(),
    ).train()


def _imitate(row: Row, gpu: bool) -> None:
    from datasets import Dataset
    from trl import SFTConfig

    from rapid.training.sft import ImitatingTrainer

    tokens = PROMPT + row.length
    ids = [2 + n % 1000 for n in range(tokens)]
    demonstration = {"input_ids": ids, "completion_mask": [0] * PROMPT + [1] * row.length}
    config = SFTConfig(
        **common_arguments(gpu, row.precision == "bfloat16", row.checkpointing),
        per_device_train_batch_size=2 * row.completions, max_length=None,
        completion_only_loss=True,
    )  # fmt: skip
    ImitatingTrainer(
        made_model(row.model, row.shape),
        config,
        train_dataset=Dataset.from_list([demonstration] * (4 * row.completions)),
        processing_class=made_tokenizer(),
        micro_batch=row.completions,
    ).train()


if __name__ == "__main__":
    sys.exit(main())
