"""Short runs of TRL's trainer and ours, alike but for their class."""

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig

from rapid import RapidConfig, RapidTrainer
from tests.training.loops import COMMON, digits_sum


def train(kind, model, toy_model, folder, reward=digits_sum, arguments=None, **settings):
    """Return a trainer after one step, or `max_steps`; `arguments` are further ones of its class.

    Eight prompts are as long as each other, so that nobody counts padding.
    """
    torch.set_num_threads(1)
    settings = COMMON | {"max_completion_length": 6, "max_steps": 1} | settings
    config = RapidConfig if issubclass(kind, RapidTrainer) else GRPOConfig
    given = {
        "train_dataset": Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(8)]),
        "processing_class": AutoTokenizer.from_pretrained(toy_model, padding_side="left"),
    }
    trainer = kind(model, reward, args=config(str(folder), **settings), **given | (arguments or {}))
    trainer.train()
    return trainer
