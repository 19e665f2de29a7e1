"""The stages that pre-train the embedded models: first their tokenizer, then each model.

1. The tokenizer is a byte-level BPE, which encodes any text. Each digit is a token, so that the
   model sees the digits with which it computes. Its class is Qwen2Tokenizer, which transformers
   uses for every folder that contains a Qwen2 model.
2. A model is trained on demonstrations (a prompt and a completion) of its benchmarks, which are
   drawn from lessons (a prompt with correct and wrong completions, `Lesson`). In the first part all
   completions are correct, which teaches the model to compute. In the rest a share, `error_rate`,
   has one mistake each, so that the base model makes errors that RL can remove. If there were
   mistakes from the start, the model would not learn the rules that the mistakes break. The loss is
   on the completion's tokens only.
3. With one thread, the same parameters give bit-identical models on one machine.
"""

import random
import sys
import time
from itertools import cycle
from pathlib import Path

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import read_jsonl
from rapid.artifacts.manifests import record_job, verify_inputs
from rapid.config.specs import MODEL_FILES, PretrainSpec, TokenizerSpec
from rapid.embedded_models.architectures import CONTEXT, build_model
from rapid.resources.memory import measure_peak_memory_mb

PAD, EOS, BOS = "<pad>", "<eos>", "<bos>"
ALL_CORRECT_SHARE = 0.3  # first part of the demonstrations, in which all completions are correct
WARMUP_STEPS = 50  # optimizer steps in which the learning rate rises
IGNORED = -100  # label of tokens without a loss, the default of torch's cross-entropy


def make_tokenizer(spec: TokenizerSpec, data: list[Path], folder: Path) -> None:
    """Train the tokenizer on the lessons in pretrain.jsonl; write it and a manifest into `folder`.

    Args:
        data: the folders of the prepared benchmarks.
    """
    files = locate_lessons(data, spec.benchmarks)
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
    print(f"{folder}: a vocabulary of {len(tokenizer):,} tokens", file=sys.stderr)


def locate_lessons(data: list[Path], benchmarks: list[str]) -> dict[str, Path]:
    """Return the path of pretrain.jsonl of each benchmark, from the folders of prepared data."""
    folders = {folder.name: folder for folder in data}
    return {name: folders[name] / "pretrain.jsonl" for name in benchmarks}


def pretrain(spec: PretrainSpec, data: list[Path], tokenizer: Path, folder: Path) -> None:
    """Train a model; write it, its tokenizer and a manifest into `folder`.

    Args:
        data: the folders of the prepared benchmarks.
        tokenizer: folder of the tokenizer.
    """
    began = time.perf_counter()
    files = locate_lessons(data, spec.params.benchmarks)
    inputs = verify_inputs(tokenizer, *files.values())
    with record_job("pretrain", spec, folder, inputs, MODEL_FILES) as notes:
        import torch
        from transformers import AutoTokenizer

        torch.set_num_threads(spec.threads)
        torch.manual_seed(spec.data_seed)
        loaded_tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        model = build_model(spec.params, loaded_tokenizer)
        # transformers chooses the tokenizer's class by the config.json in the same folder. So load
        # the tokenizer from the model's folder, as users will.
        loaded_tokenizer.save_pretrained(folder)
        model.config.save_pretrained(folder)
        loaded_tokenizer = AutoTokenizer.from_pretrained(folder)
        examples = build_demonstrations(spec, files, loaded_tokenizer)
        trainer = _build_trainer(spec, model, loaded_tokenizer, examples, folder)
        result = trainer.train()
        trainer.save_model(str(folder))
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
        notes |= {
            "parameters": model.num_parameters(),
            "loss": result.training_loss,
            "seconds": time.perf_counter() - began,
            "peak_memory_mb": measure_peak_memory_mb(),
        }
    print(f"{folder}: loss {result.training_loss:.2f}", file=sys.stderr)


def build_demonstrations(spec: PretrainSpec, files: dict[str, Path], tokenizer) -> list[dict]:
    """Return tokenized demonstrations, those of the part without mistakes first.

    There are as many as fill `steps` batches of each benchmark. Lessons are repeated as often as
    needed. Each time, it is random whether the completion is correct or has a mistake.

    Returns:
        For each demonstration `input_ids` (prompt, completion, end of text) and `labels`, in which
        the prompt's tokens are `IGNORED`.
    """
    rng, params = random.Random(spec.data_seed), spec.params
    sources = {name: cycle(list(read_jsonl(file, Lesson))) for name, file in files.items()}
    total = params.steps * spec.pretraining.batch  # demonstrations of each benchmark
    all_correct = int(ALL_CORRECT_SHARE * total)
    pairs = []
    for count, rates in (
        (all_correct, dict.fromkeys(files, 0.0)),
        (total - all_correct, params.error_rate),
    ):
        named_lessons = [(name, next(sources[name])) for name in files for _ in range(count)]
        rng.shuffle(named_lessons)
        pairs += [
            (lesson.prompt, lesson.draw_completion(rng, rates[name]))
            for name, lesson in named_lessons
        ]
    prompts = tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    completions = tokenizer([completion for _, completion in pairs])["input_ids"]
    ended_completions = [[*completion, tokenizer.eos_token_id] for completion in completions]
    return [
        {"input_ids": prompt + completion, "labels": [IGNORED] * len(prompt) + completion}
        for prompt, completion in zip(prompts, ended_completions, strict=True)
    ]


def build_batches(examples: list[dict], size: int, seed: int) -> list[list[dict]]:
    """Return batches of examples of similar length, to save padding, in random order.

    Batches change places only within groups of 50 consecutive batches, so that demonstrations
    without mistakes stay first.
    """
    rng, all_batches = random.Random(seed), []
    for start in range(0, len(examples), 50 * size):
        chunk = examples[start : start + 50 * size]
        chunk.sort(key=lambda example: len(example["input_ids"]))
        chunk_batches = [chunk[i : i + size] for i in range(0, len(chunk), size)]
        rng.shuffle(chunk_batches)
        all_batches += chunk_batches
    return all_batches


def build_optimizer(model, learning_rate: float):
    """Return an optimizer: Muon for the layers' matrices, AdamW for embeddings, norms and biases.

    With AdamW alone, a model of two layers completes far fewer held-out demonstrations correctly
    after equally many steps.
    """
    from rapid.embedded_models.muon import MuonAndAdamW

    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in trainable if p.ndim == 2 and "embed" not in name]
    matrix_ids = set(map(id, matrices))
    other_parameters = [p for _, p in trainable if id(p) not in matrix_ids]
    return MuonAndAdamW(matrices, other_parameters, learning_rate)


def _build_trainer(spec: PretrainSpec, model, tokenizer, examples: list[dict], folder: Path):
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
        warmup_steps=WARMUP_STEPS,
        save_strategy="no",
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    # Pad on the right for training. The saved tokenizer pads on the left, for sampling.
    pad_batch = DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(folder, padding_side="right"))

    def collate(examples: list[list[dict]]) -> dict:
        """Pad a batch, and make the model compute logits only from the batch's first label on.

        The logits of the prompts, about half of all logits, are not needed.
        """
        inputs = pad_batch(examples[0])
        first_label = int((inputs["labels"] != IGNORED).any(dim=0).nonzero()[0])
        count = inputs["labels"].size(1) - first_label + 1  # + 1: a logit predicts the next token
        return {**inputs, "labels": inputs["labels"][:, -count:], "logits_to_keep": count}

    return Trainer(
        model,
        arguments,
        data_collator=collate,
        train_dataset=build_batches(examples, spec.pretraining.batch, spec.data_seed),
        processing_class=tokenizer,
        callbacks=[FiniteWeights()],
        optimizers=(optimizer, None),
    )
