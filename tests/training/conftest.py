"""Short runs of TRL's trainer and ours, alike but for their class; and a pass of a few prompts."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig

from rapid import RapidConfig, RapidTrainer
from tests.training.loops import COMMON, digits_sum

GROUP = 3


@pytest.fixture
def train(toy_model, tmp_path):
    """Return a function that trains a model for one step, or `max_steps`, and returns the trainer.

    Its `arguments` are further ones of the trainer's class. Eight prompts are as long as each
    other, so that nobody counts padding.
    """

    def train(kind, model, reward=digits_sum, arguments=None, folder=tmp_path, **settings):
        torch.set_num_threads(1)
        settings = COMMON | {"max_completion_length": 6, "max_steps": 1} | settings
        config = RapidConfig if issubclass(kind, RapidTrainer) else GRPOConfig
        given = {
            "train_dataset": Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(8)]),
            "processing_class": AutoTokenizer.from_pretrained(toy_model, padding_side="left"),
        } | (arguments or {})
        trainer = kind(model, reward, args=config(str(folder), **settings), **given)
        trainer.train()
        return trainer

    return train


@pytest.fixture
def micro_batch():
    """Two groups of three: prompts of 12 and 7 tokens, completions of 1 to 6."""
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(2, 258, (2, 12), generator=generator).repeat_interleave(GROUP, dim=0)
    prompt_mask = torch.ones_like(prompts)
    prompt_mask[GROUP:, :5] = 0
    completions = torch.randint(2, 258, (2 * GROUP, 6), generator=generator)
    mask = (torch.arange(6) < torch.tensor([6, 1, 3, 2, 6, 5])[:, None]).long()
    return {
        "prompt_ids": prompts * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": completions * mask,
        "completion_mask": mask,
    }
