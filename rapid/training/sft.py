"""Supervised fine-tuning on a teacher's correct completions or made ones, with TRL's SFTTrainer."""

from pathlib import Path

from accelerate import PartialState
from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from rapid.algorithms.sft import SftParameters
from rapid.artifacts.demonstrations import Demonstration
from rapid.benchmarks.prompts import prompt_ids
from rapid.training.refusals import FiniteWeights
from rapid.training.trl.saving import SavingTrainer


class ImitatingTrainer(SavingTrainer, SFTTrainer):
    """SFTTrainer whose checkpoints are whole or not there."""


def sft_trainer(
    model: Path,
    demonstrations: list[Demonstration],
    params: SftParameters,
    common: dict,
    chat: bool = False,
) -> SFTTrainer:
    """Return a trainer that imitates the demonstrations; its loss is on completion tokens only.

    Prompt and completion are tokenized apart, as they are when a policy samples: tokenized as one
    text, the end of the prompt and the start of the completion can merge into a token that a policy
    is never asked for.

    Args:
        common: training arguments that all trainers of the pipeline share.
        chat: the model is prompted by its chat template.
    """
    of_a_process = params.batch // PartialState().num_processes
    of_a_pass = max(n for n in range(1, params.micro_batch + 1) if of_a_process % n == 0)
    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    asked = [d.message if chat else d.prompt for d in demonstrations]
    prompts = [prompt_ids(tokenizer, text, chat) for text in asked]
    completions = tokenizer([d.completion for d in demonstrations], add_special_tokens=False)[
        "input_ids"
    ]
    end = [tokenizer.eos_token_id]
    rows = [
        {
            "input_ids": prompt + completion + end,
            "completion_mask": [0] * len(prompt) + [1] * (len(completion) + 1),
        }
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    config = SFTConfig(
        **common,
        learning_rate=params.learning_rate,
        num_train_epochs=params.epochs,
        per_device_train_batch_size=of_a_pass,
        gradient_accumulation_steps=of_a_process // of_a_pass,
        max_length=None,
        completion_only_loss=True,
    )
    return ImitatingTrainer(
        str(model),
        config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[FiniteWeights()],
    )
