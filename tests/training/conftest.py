"""Fixtures: short runs of TRL's trainer and RAPID's, and a micro-batch of two groups."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig

from rapid import RapidConfig, RapidTrainer
from tests.training.loops import COMMON, text_sum_reward

GROUP_SIZE = 3


@pytest.fixture
def train(toy_model, tmp_path):
    """A function that trains a model for one step, or `max_steps`, and returns the trainer.

    Its `arguments` go to the trainer's class. The eight prompts have equal lengths, so that no
    padding is counted.
    """

    def train(
        trainer_class, model, reward=text_sum_reward, arguments=None, folder=tmp_path, **settings
    ):
        torch.set_num_threads(1)
        settings = COMMON | {"max_completion_length": 6, "max_steps": 1} | settings
        config_class = RapidConfig if issubclass(trainer_class, RapidTrainer) else GRPOConfig
        arguments = {
            "train_dataset": Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(8)]),
            "processing_class": AutoTokenizer.from_pretrained(toy_model, padding_side="left"),
        } | (arguments or {})
        trainer = trainer_class(
            model, reward, args=config_class(str(folder), **settings), **arguments
        )
        trainer.train()
        return trainer

    return train


@pytest.fixture
def micro_batch():
    """Two groups of three: prompts of 12 and 7 tokens, completions of 1 to 6."""
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(2, 258, (2, 12), generator=generator).repeat_interleave(
        GROUP_SIZE, dim=0
    )
    prompt_mask = torch.ones_like(prompts)
    prompt_mask[GROUP_SIZE:, :5] = 0
    completions = torch.randint(2, 258, (2 * GROUP_SIZE, 6), generator=generator)
    mask = (torch.arange(6) < torch.tensor([6, 1, 3, 2, 6, 5])[:, None]).long()
    return {
        "prompt_ids": prompts * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": completions * mask,
        "completion_mask": mask,
    }
