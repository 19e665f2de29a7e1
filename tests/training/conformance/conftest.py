"""A pass to take log-probabilities of."""

import pytest
import torch

GROUP = 3


@pytest.fixture
def piece():
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
