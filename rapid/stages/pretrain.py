"""The stages that make the embedded models: one tokenizer, then each model from its architecture.

1. The tokenizer is a byte-level BPE that splits text as Qwen2's does: any text has tokens, and
   every digit is one of its own, for a model that computes must see the digits. It has Qwen2's
   class, because transformers gives every folder with a Qwen2 model that class, and with it that
   splitting.
2. A model is trained on demonstrations of the benchmarks it is for: first on correct ones, which
   teach it to compute, then on some of which a share, `error_rate`, has one mistake: those make the
   base model's errors. Mistakes from the start would hide the rules that they break. Loss is on the
   completion's tokens only.
3. The same parameters give the same model, to the bit, on one machine with one thread.
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
CLEAN = 0.3  # share of pre-training without mistakes
WARMUP = 50  # steps in which the learning rate rises
IGNORED = -100  # a label without loss
MODEL_FILES = ("*.json", "*.safetensors", "*.bin", "*.txt", "*.jinja")  # that transformers saves


def make_tokenizer(spec: TokenizerSpec, data: list[Path], folder: Path) -> None:
    """Train the tokenizer on the pretraining problems and write it, with a manifest, into `folder`.

    Args:
        data: the folders of the prepared benchmarks, or the one folder that has them.
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
    """Return each benchmark's pretrain.jsonl, from their folders or the one above them."""
    folders = {folder.name: folder for folder in data}
    return {name: folders.get(name, data[0] / name) / "pretrain.jsonl" for name in benchmarks}


def pretrain(spec: PretrainSpec, data: list[Path], tokenizer: Path, folder: Path) -> None:
    """Train a model and write it, with its tokenizer and a manifest, into `folder`.

    Args:
        data: the folders of the prepared benchmarks, or the one folder that has them.
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
        # What transformers makes of a tokenizer depends on the model beside it: take what users
        # get.
        encode.save_pretrained(folder)
        model.config.save_pretrained(folder)
        encode = AutoTokenizer.from_pretrained(folder)
        examples = demonstrations(spec, files, encode)
        trainer = _trainer(spec, model, encode, examples, folder)
        result = trainer.train()
        trainer.save_model(str(folder))
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle that nobody loads
        notes |= {
            "parameters": model.num_parameters(),
            "loss": result.training_loss,
            "seconds": time.perf_counter() - began,
            "peak_memory_mb": peak_memory_mb(),
        }
    print(f"{folder}: loss {result.training_loss:.2f}", file=sys.stderr)


def demonstrations(spec: PretrainSpec, files: dict[str, Path], tokenizer) -> list[dict]:
    """Return tokenized demonstrations: `steps` batches of each benchmark, first without mistakes.

    The lessons are gone through as often as it takes, and each time it is drawn anew whether one is
    answered correctly.
    """
    rng, params = random.Random(spec.data_seed), spec.params
    sources = {name: cycle(list(read_jsonl(file, Lesson))) for name, file in files.items()}
    total = params.steps * spec.pretraining.batch
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
    """Return batches of examples of like length, in a mixed order.

    Only stretches of 50 batches are sorted by length, which is enough to save the padding: the
    demonstrations without mistakes stay first.
    """
    rng, all_batches = random.Random(seed), []
    for start in range(0, len(examples), 50 * size):
        stretch = sorted(examples[start : start + 50 * size], key=lambda e: len(e["input_ids"]))
        stretch_batches = [stretch[i : i + size] for i in range(0, len(stretch), size)]
        rng.shuffle(stretch_batches)
        all_batches += stretch_batches
    return all_batches


def build_optimizer(model, learning_rate: float):
    """Return Muon for the layers' matrices, AdamW for embeddings, norms and biases.

    In as many steps a model of two layers then completes far more held-out demonstrations without a
    mistake than with AdamW alone.
    """
    from rapid.embedded_models.muon import MuonAndAdamW

    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    matrix_ids = set(map(id, matrices))
    rest = [p for _, p in named if id(p) not in matrix_ids]
    return MuonAndAdamW(matrices, rest, learning_rate)


def _trainer(spec: PretrainSpec, model, tokenizer, examples: list[dict], folder: Path):
    import torch
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

    from rapid.training.refusals import FiniteWeights

    optimizer = build_optimizer(model, spec.pretraining.learning_rate)
    arguments = TrainingArguments(
        output_dir=str(folder),
        seed=spec.data_seed,
        num_train_epochs=1,
        per_device_train_batch_size=1,  # a whole batch is one example of `batches`
        remove_unused_columns=False,
        logging_steps=100,
        lr_scheduler_type="cosine",
        warmup_steps=WARMUP,
        save_strategy="no",
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    # The folder's own tokenizer pads on the left, for sampling.
    pad = DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(folder, padding_side="right"))

    def padded(examples: list[list[dict]]) -> dict:
        """Return the one batch, with logits from its first label on: half as many."""
        inputs = pad(examples[0])
        first = int((inputs["labels"] != IGNORED).any(dim=0).nonzero()[0])
        count = inputs["labels"].size(1) - first + 1  # a logit is of the token that comes next
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
