"""The stages that make the embedded models: one tokenizer, then each tiny model from scratch.

1. The tokenizer is a byte-level BPE that splits text as Qwen2's tokenizer does. Any text can be
   encoded, and each digit is a token of its own, so that the model sees the digits it computes
   with. Its class is Qwen2Tokenizer, because transformers uses that class, and its way of splitting
   text, for every folder that contains a Qwen2 model.
2. A model is trained on demonstrations (a prompt and a completion) of its benchmarks. The first
   part has correct completions only, which teach the model to compute. In the rest a share,
   `error_rate`, has one mistake each, so that the base model makes errors that RL can remove. With
   mistakes from the start the model would not learn the rules that they break. The loss is on the
   completion's tokens only.
3. With one thread, the same parameters give bit-identical models on one machine.
"""

import random
import sys
import time
from itertools import cycle
from pathlib import Path

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import read_jsonl
from rapid.artifacts.manifests import peak_memory_mb, record_job, verify_inputs
from rapid.config.specs import PretrainSpec, TokenizerSpec
from rapid.embedded_models.architectures import CONTEXT, build_model

PAD, EOS, BOS = "<pad>", "<eos>", "<bos>"
CLEAN = 0.3  # share of pre-training, at its beginning, that has correct completions only
WARMUP = 50  # optimizer steps in which the learning rate rises
IGNORED = -100  # label of a token that has no loss, as torch's cross-entropy defines it
# Files that transformers saves, and that a job deletes from its folder before it starts.
MODEL_FILES = ("*.json", "*.safetensors", "*.bin", "*.txt", "*.jinja")


def make_tokenizer(spec: TokenizerSpec, data: list[Path], folder: Path) -> None:
    """Train the tokenizer on the lessons in pretrain.jsonl; write it and a manifest into `folder`.

    Args:
        data: the folders of the prepared benchmarks, or one folder that contains these.
    """
    files = lessons(data, spec.benchmarks)
    with record_job(
        "tokenizer", spec, folder, verify_inputs(*files.values()), MODEL_FILES
    ) as notes:
        from tokenizers.pre_tokenizers import ByteLevel
        from transformers import Qwen2Tokenizer

        texts = [
            text
            for file in files.values()
            for lesson in read_jsonl(file, Lesson)
            for text in (lesson.prompt, lesson.correct, *lesson.mistakes)
        ]
        untrained = Qwen2Tokenizer(
            unk_token=None,
            pad_token=PAD,
            eos_token=EOS,
            bos_token=BOS,
            padding_side="left",
            model_max_length=CONTEXT,
        )
        alphabet = sorted(ByteLevel.alphabet())
        tokenizer = untrained.train_new_from_iterator(
            texts, spec.vocabulary, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.save_pretrained(folder)
        notes["vocabulary"] = len(tokenizer)
    print(f"{folder}: {len(tokenizer):,} tokens", file=sys.stderr)


def lessons(data: list[Path], benchmarks: list[str]) -> dict[str, Path]:
    """Return the path of each benchmark's pretrain.jsonl.

    Args:
        data: the folders of the prepared benchmarks, or one folder that contains these.
    """
    folders = {folder.name: folder for folder in data}
    return {name: folders.get(name, data[0] / name) / "pretrain.jsonl" for name in benchmarks}


def pretrain(spec: PretrainSpec, data: list[Path], tokenizer: Path, folder: Path) -> None:
    """Train a model; write it, its tokenizer and a manifest into `folder`.

    Args:
        data: the folders of the prepared benchmarks, or one folder that contains these.
        tokenizer: folder of the tokenizer.
    """
    began = time.perf_counter()
    files = lessons(data, spec.params.benchmarks)
    inputs = verify_inputs(tokenizer, *files.values())
    with record_job("pretrain", spec, folder, inputs, MODEL_FILES) as notes:
        import torch
        from transformers import AutoTokenizer

        torch.set_num_threads(spec.threads)
        torch.manual_seed(spec.data_seed)
        encode = AutoTokenizer.from_pretrained(tokenizer)
        model = build_model(spec.params, encode)
        # transformers chooses the tokenizer's class by the config.json in the same folder. So load
        # the tokenizer from the model's folder, as users will.
        encode.save_pretrained(folder)
        model.config.save_pretrained(folder)
        encode = AutoTokenizer.from_pretrained(folder)
        examples = demonstrations(spec, files, encode)
        trainer = _trainer(spec, model, encode, examples, folder)
        result = trainer.train()
        trainer.save_model(str(folder))
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
        notes |= {
            "parameters": model.num_parameters(),
            "loss": result.training_loss,
            "seconds": time.perf_counter() - began,
            "peak_memory_mb": peak_memory_mb(),
        }
    print(f"{folder}: loss {result.training_loss:.2f}", file=sys.stderr)


def demonstrations(spec: PretrainSpec, files: dict[str, Path], tokenizer) -> list[dict]:
    """Return tokenized demonstrations: `steps` batches of each benchmark, the correct ones first.

    Lessons are repeated until there are enough. Each time, a random draw decides whether a lesson's
    completion is correct or has a mistake.

    Returns:
        For each demonstration `input_ids` (prompt, completion, end of text) and `labels`, in which
        the prompt's tokens are `IGNORED`.
    """
    rng, params = random.Random(spec.data_seed), spec.params
    sources = {name: cycle(list(read_jsonl(file, Lesson))) for name, file in files.items()}
    total = params.steps * spec.pretraining.batch  # demonstrations of each benchmark
    clean = int(CLEAN * total)
    pairs = []
    for count, rates in ((clean, dict.fromkeys(files, 0.0)), (total - clean, params.error_rate)):
        drawn = [(name, next(sources[name])) for name in files for _ in range(count)]
        rng.shuffle(drawn)
        pairs += [
            (lesson.prompt, lesson.draw_completion(rng, rates[name])) for name, lesson in drawn
        ]
    prompts = tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    completions = tokenizer([completion for _, completion in pairs])["input_ids"]
    ended = [[*completion, tokenizer.eos_token_id] for completion in completions]
    return [
        {"input_ids": prompt + completion, "labels": [IGNORED] * len(prompt) + completion}
        for prompt, completion in zip(prompts, ended, strict=True)
    ]


def batches(examples: list[dict], size: int, seed: int) -> list[list[dict]]:
    """Return batches of examples of similar length, to save padding, in random order.

    Examples are sorted and shuffled only within stretches of 50 batches, so that the demonstrations
    without mistakes stay first.
    """
    rng, all_batches = random.Random(seed), []
    for start in range(0, len(examples), 50 * size):
        stretch = sorted(examples[start : start + 50 * size], key=lambda e: len(e["input_ids"]))
        stretch_batches = [stretch[i : i + size] for i in range(0, len(stretch), size)]
        rng.shuffle(stretch_batches)
        all_batches += stretch_batches
    return all_batches


def build_optimizer(model, learning_rate: float):
    """Return an optimizer: Muon for the layers' matrices, AdamW for embeddings, norms and biases.

    After equally many steps, a model of two layers then completes far more held-out demonstrations
    without a mistake than with AdamW alone.
    """
    from rapid.embedded_models.muon import MuonAndAdamW

    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    matrix_ids = set(map(id, matrices))
    rest = [p for _, p in named if id(p) not in matrix_ids]
    return MuonAndAdamW(matrices, rest, learning_rate)


def _trainer(spec: PretrainSpec, model, tokenizer, examples: list[dict], folder: Path):
    """Return transformers' Trainer for pre-training on these examples."""
    import torch
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

    from rapid.training.refusals import FiniteWeights

    optimizer = build_optimizer(model, spec.pretraining.learning_rate)
    arguments = TrainingArguments(
        output_dir=str(folder),
        seed=spec.data_seed,
        num_train_epochs=1,
        per_device_train_batch_size=1,  # an example of this dataset is a whole batch
        remove_unused_columns=False,
        logging_steps=100,
        lr_scheduler_type="cosine",
        warmup_steps=WARMUP,
        save_strategy="no",
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    # Pad on the right for training. The saved tokenizer pads on the left, for sampling.
    pad = DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(folder, padding_side="right"))

    def padded(examples: list[list[dict]]) -> dict:
        """Collate a batch; limit the logits to the positions from its first label on.

        The logits of the prompts, about half of all logits, are not needed.
        """
        inputs = pad(examples[0])
        first = int((inputs["labels"] != IGNORED).any(dim=0).nonzero()[0])
        count = inputs["labels"].size(1) - first + 1  # + 1: a logit predicts the next token
        return {**inputs, "labels": inputs["labels"][:, -count:], "logits_to_keep": count}

    return Trainer(
        model,
        arguments,
        data_collator=padded,
        train_dataset=batches(examples, spec.pretraining.batch, spec.data_seed),
        processing_class=tokenizer,
        callbacks=[FiniteWeights()],
        optimizers=(optimizer, None),
    )
