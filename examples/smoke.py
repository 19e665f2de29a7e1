"""A tiny model and generated rows, with which the examples run if `--smoke` is set.

A smoke run shows in seconds that a script works, without a network and without a GPU. Rewards are
random, because the weights of the model are random. If you copy an example, leave out this file and
the branch `if arguments.smoke`, which imports it.
"""

import atexit
import json
import shutil
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    set_seed,
)

# The tiny model's tokens: correct and wrong answers to the prompts of the examples.
ANSWERS = [*map(str, range(8, 13)), *(f"\\boxed{{{number}}}" for number in range(1, 6))]
ANSWERS += [f"\n```python\ndef add_{n}(x):\n    return x + {n}\n```\n" for n in (1, 2, 3)]
ANSWERS += ["\n```lean\nomega\n```\n", "\n```lean\nskip\n```\n"]
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
# Templates of rows by dataset, with the columns that the dataset has on the hub. A name in braces
# stands for a number.
ROW_TEMPLATES: dict[str, dict[str, Any]] = {
    "openai/gsm8k": {"question": "What is {a} + {b}?", "answer": "{a} + {b} = {sum}\n#### {sum}"},
    "evalplus/mbppplus": {
        "task_id": "90{a}{b}",  # MBPP+ has no such ids
        "prompt": "Write a function to add {b} to a number.",
        "code": "def add_{b}(x):\n    return x + {b}",
        "test_list": ["assert add_{b}({a}) == {sum}"],
        "test": "inputs = [[{a}]]\nresults = [{sum}]\nfor inp, exp in zip(inputs, results):\n"
        "    assertion(add_{b}(*inp), exp, 0)\n",
    },
    "cat-searcher/minif2f-lean4": {
        "id": "sum_{a}_{b}",
        "formal_statement": "theorem sum_{a}_{b} (n : Nat) (h : n = {a}) : n + {b} = {sum} := by\n",
        "header": "",
    },
}
# Sizes that replace those of an example, if the example sets them.
SMALL_SIZES = {"H": 2, "n_step": 32, "micro_batch_size": 16}
SMALL_SIZES |= {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2}
# Settings of all smoke runs.
SMOKE_SETTINGS: dict[str, Any] = {
    "num_generations": 4,
    "max_completion_length": 4,
    "logging_steps": 2,
}
SMOKE_SETTINGS |= {"use_cpu": True, "bf16": False, "save_strategy": "no", "report_to": []}


def shrink(arguments: Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """Set the tiny model and 6 steps in an example's arguments; return its settings made small."""
    arguments.model, arguments.max_steps = save_model(), 6
    sizes = {name: size for name, size in SMALL_SIZES.items() if name in settings}
    return settings | sizes | SMOKE_SETTINGS


def load_dataset(name: str, *_: Any, **__: Any) -> Dataset:
    """Return 30 generated rows with the columns of this dataset on the hub."""
    rows = []
    for number in range(10):
        for b in (1, 2, 3):
            a = number % 3  # so that `ANSWERS` has all sums
            text = json.dumps(ROW_TEMPLATES[name])
            for key, value in {"a": a, "b": b, "sum": a + b}.items():
                text = text.replace(f"{{{key}}}", str(value))
            rows.append(json.loads(text))
    return Dataset.from_list(rows)


def save_model() -> str:
    """Save an untrained model of one layer in a folder that is deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rapid-smoke-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    vocabulary = {word: token for token, word in enumerate(["<pad>", "<eos>", "?", *ANSWERS])}
    word_tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    word_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    set_seed(0)
    # AutoTokenizer would load another class of tokenizer with most other models.
    config = AutoConfig.for_model(
        "granite",
        vocab_size=len(vocabulary),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        intermediate_size=64,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def write_log(model_folder: str, group_size: int) -> str:
    """Sample completions of 20 prompts from a model, and return a file with them and log-probs."""
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    log = Path(model_folder, "completions.jsonl")
    with log.open("w", encoding="utf-8") as file:
        for number in range(20):
            row: dict[str, Any] = {"prompt": f"{number} + 1 ="}
            sampled = model.generate(
                **tokenizer(row["prompt"], return_tensors="pt"),
                do_sample=True,
                top_k=0,
                max_new_tokens=4,
                num_return_sequences=group_size,
                output_logits=True,
                return_dict_in_generate=True,
            )
            logits = torch.stack(sampled.logits, dim=1)  # (group_size, tokens, vocabulary)
            ids = sampled.sequences[:, -logits.size(1) :]
            logps = logits.log_softmax(-1).gather(2, ids[:, :, None])[:, :, 0]
            is_end = (ids == tokenizer.eos_token_id).int()
            lengths = (is_end.cumsum(1) - is_end == 0).sum(1).tolist()  # with the end token
            for name, values in {"completion_ids": ids, "logprobs": logps}.items():
                row[name] = [tokens[:n] for tokens, n in zip(values.tolist(), lengths, strict=True)]
            texts = tokenizer.batch_decode(row["completion_ids"], skip_special_tokens=True)
            row["reward"] = [float(str(number + 1) in text) for text in texts]
            file.write(json.dumps(row) + "\n")
    return str(log)
