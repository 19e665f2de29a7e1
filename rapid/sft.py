"""Supervised fine-tuning on the teacher's correct completions, with TRL's SFTTrainer."""

from pathlib import Path

from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from rapid.params import Sft
from rapid.records import Demonstration


def sft_trainer(
    model: Path, demonstrations: list[Demonstration], params: Sft, common: dict
) -> SFTTrainer:
    """A trainer that imitates the demonstrations; the loss is on completion tokens only.

    Args:
        common: training arguments that all trainers of the pipeline share.
    """
    config = SFTConfig(
        **common,
        learning_rate=params.learning_rate,
        num_train_epochs=params.epochs,
        per_device_train_batch_size=params.batch,
        max_length=None,
    )
    rows = [{"prompt": d.prompt, "completion": d.completion} for d in demonstrations]
    return SFTTrainer(
        str(model),
        config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(model),
    )
