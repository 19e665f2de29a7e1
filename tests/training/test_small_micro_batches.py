"""Micro-batches smaller than a group have the gradient of whole groups, for every objective."""

import pytest
import torch
from transformers import AutoTokenizer

from rapid.algorithms import ALGORITHMS
from tests.training import loops
from tests.training.conformance.families import build_untrained
from tests.training.loops import COMMON, NO_SAVINGS

OBJECTIVES = [name for name, algorithm in ALGORITHMS.items() if not algorithm.is_supervised] + [
    "trl"
]
GROUP_SIZE = COMMON["num_generations"]
STEPS = 3  # on one inference batch: the policy moves between them


def compute_gradients(
    model, folder, objective, trainer_class=loops.RecordingTrainer, **settings
) -> tuple[torch.Tensor, list[float]]:
    """Return the gradients of the steps of an inference batch, (steps, parameters), and losses."""
    h = 1 if objective != "trl" and ALGORITHMS[objective].h_in_name == "none" else STEPS
    sizes = {"H": h, "n_step": 8, "max_steps": STEPS, "learning_rate": 0.5}
    trainer = loops.train_rapid(
        model, folder, objective, trainer_class=trainer_class, **sizes | settings
    )
    return torch.stack(trainer.gradients), trainer.losses


@pytest.fixture(autouse=True)
def use_float64():
    """Use float64 by default, the precision of shares and masks."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def model(toy_model, tmp_path_factory):
    """A folder with a float64 GPT-2, whose norms compute in float64; those of others do not."""
    folder = tmp_path_factory.mktemp("gpt2")
    AutoTokenizer.from_pretrained(toy_model).save_pretrained(folder)
    build_untrained("GPT2", torch.float64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def whole_group_gradients(model, tmp_path_factory):
    """A function that returns an objective's gradients from whole mini-batches, computed once."""
    gradients_by_objective = {}

    def get_gradients(objective):
        if objective not in gradients_by_objective:
            settings = NO_SAVINGS | {"micro_batch_size": 8}
            gradients_by_objective[objective] = compute_gradients(
                model, tmp_path_factory.mktemp("plain"), objective, **settings
            )
        return gradients_by_objective[objective]

    return get_gradients


@pytest.mark.parametrize(
    "size", [1, 3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, GROUP_SIZE))]
)
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradient_matches_whole_groups(
    objective, pack, size, whole_group_gradients, model, tmp_path
):
    expected, losses = whole_group_gradients(objective)
    gradients, small_losses = compute_gradients(
        model, tmp_path, objective, micro_batch_size=size, pack=pack, skip_zero_groups=False
    )
    # Metrics are means in float32, from which `step_scale` computes the size of a step.
    scales_steps = objective != "trl" and ALGORITHMS[objective].scales_steps
    tolerance = 1e-6 if scales_steps else 1e-9
    assert expected.norm() > 0
    assert (gradients - expected).norm() <= tolerance * expected.norm()
    assert small_losses == pytest.approx(losses, rel=tolerance, abs=1e-12)


class ToolTrainer(loops.RecordingTrainer):
    """A third of the tokens are answers of tools, which the loss mask excludes."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return batch | {"tool_mask": (batch["completion_ids"] % 3 > 0).long()}


class PartlyTruncatedTrainer(loops.RecordingTrainer):
    """Two of three completions end; the others are truncated."""

    def _generate_single_turn(self, *arguments):
        completions, logps = super()._generate_single_turn(*arguments)
        ends = [[*ids[:-1], 1] if row % 3 else ids for row, ids in enumerate(completions)]
        return ends, logps


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("rapid", {"trainer_class": ToolTrainer}),
        ("grpo", {"trainer_class": ToolTrainer}),
        ("pg", {"trainer_class": PartlyTruncatedTrainer, "mask_truncated_completions": True}),
        ("dapo", {"trainer_class": PartlyTruncatedTrainer, "mask_truncated_completions": True}),
        ("rapid", {"reward": "partial_reward"}),
    ],
)
def test_masked_tokens_and_groups_do_not_count_in_small_micro_batches(
    objective, settings, pack, model, tmp_path
):
    """Tokens of tools, truncated completions, and ungraded groups."""
    whole_batch = NO_SAVINGS | {"micro_batch_size": 8}
    small = {"micro_batch_size": 1, "pack": pack, "skip_zero_groups": False}
    (expected, losses), (gradients, small_losses) = (
        compute_gradients(model, tmp_path, objective, **settings | batch_settings)
        for batch_settings in (whole_batch, small)
    )
    assert expected.norm() > 0
    assert (gradients - expected).norm() <= 1e-9 * expected.norm()
    assert small_losses == pytest.approx(losses, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, GROUP_SIZE])
@pytest.mark.parametrize("objective", ["rapid", "grpo", "m2po", "trl"])
def test_bfloat16_gradient_matches_whole_groups_up_to_rounding(
    objective, size, toy_model, tmp_path
):
    torch.set_default_dtype(torch.float32)
    settings = {"bf16": True, "dtype": torch.float32, "learning_rate": 1e-3, "pack": False}
    settings |= {"skip_zero_groups": False, "reuse_logp": False}
    (expected, _), (gradients, _) = (
        compute_gradients(
            toy_model, tmp_path, objective, micro_batch_size=micro_batch_size, **settings
        )
        for micro_batch_size in (8, size)
    )
    error = (gradients - expected).norm(dim=1) / expected.norm(dim=1)
    assert error.max() < 8 * 2.0**-8  # a few roundings of bfloat16, each up to 2**-8
