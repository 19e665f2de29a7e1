"""Batch sizes of RapidConfig: H and N_step from TRL's sizes, and TRL's sizes from H and N_step."""

from dataclasses import replace

import pytest
from trl import GRPOConfig

from rapid.training.config import RapidConfig
from tests.training.test_config import COMMON, VALID

BATCH, ACCUMULATION, STEPS, GENERATION = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
)


@pytest.mark.parametrize(
    ("processes", "sizes", "n_step", "H", "micro_batch_size"),
    [
        (1, {}, 32, 4, 8),  # RAPID's defaults
        (1, {BATCH: 8}, 8, 1, 8),
        (1, {BATCH: 3, "num_generations": 3}, 3, 1, 3),
        (2, {BATCH: 8, ACCUMULATION: 4}, 64, 1, 8),
        (1, {BATCH: 16, STEPS: 4, "num_generations": 4}, 16, 4, 16),
        (1, {BATCH: 2, ACCUMULATION: 4, STEPS: 16, "num_generations": 4}, 8, 4, 2),
        (1, {BATCH: 8, GENERATION: 64}, 8, 8, 8),
        (2, {BATCH: 4, ACCUMULATION: 2, GENERATION: 64}, 16, 4, 4),
        (1, {BATCH: 8, GENERATION: 64, "num_iterations": 2}, 8, 16, 8),
        (1, {BATCH: 8, ACCUMULATION: 4, GENERATION: 16}, 32, 1, 8),
        (1, {BATCH: 8, "num_iterations": 2}, 8, 2, 8),
        (1, {BATCH: 8, STEPS: 2, "num_iterations": 3}, 8, 6, 8),
        (1, {BATCH: 8, ACCUMULATION: 4, STEPS: 2}, 32, 1, 8),  # TRL samples twice a step
        (1, {ACCUMULATION: 2}, 16, 1, 8),  # with TRL's device batch of 8
        (1, {BATCH: 8, ACCUMULATION: 4, "H": 4}, 32, 4, 8),
        (1, {"n_step": 16, STEPS: 2}, 16, 2, 8),
        (1, {"n_step": 24, "num_generations": 12}, 24, 4, 8),
        (1, {"num_generations": 4}, 32, 4, 8),
    ],
)
def test_trl_batch_sizes_set_n_step_and_h(
    monkeypatch, processes, sizes, n_step, H, micro_batch_size
):
    monkeypatch.setattr(GRPOConfig, "world_size", processes)
    config = RapidConfig(**COMMON | sizes)
    for built_config in (config, replace(config, learning_rate=0.1)):
        assert (built_config.n_step, built_config.H) == (n_step, H)
        assert built_config.micro_batch_size == micro_batch_size
        assert (built_config.num_iterations, built_config.gradient_accumulation_steps) == (1, 1)
    if {BATCH, STEPS, GENERATION, "num_iterations"} & {*sizes} and "H" not in sizes:
        assert H * n_step == count_completions_sampled_by_trl(processes, sizes)


def test_reuse_is_num_iterations_of_grpo_trainer():
    """It does not change the inference batch, and survives a change of other settings."""
    sizes = {BATCH: 8, STEPS: 2}
    config = RapidConfig(**COMMON | sizes, reuse=3)
    for built_config in (config, replace(config, learning_rate=0.1)):
        assert (built_config.n_step, built_config.H, built_config.reuse) == (8, 2, 3)
        assert built_config.steps_per_batch == 6
    trl_config = GRPOConfig(**COMMON | sizes, num_iterations=3)
    assert trl_config.generation_batch_size == config.generation_batch_size == 16


def count_completions_sampled_by_trl(processes: int, sizes: dict) -> int:
    """Return how many completions GRPOTrainer samples at a time, at least those of a step."""
    trl_sizes = {name: value for name, value in sizes.items() if name != "n_step"}
    if "n_step" in sizes:
        trl_sizes[BATCH] = sizes["n_step"] // processes
    config = GRPOConfig(**COMMON | trl_sizes)
    batch_size = config.per_device_train_batch_size * processes
    steps_per_batch = config.steps_per_generation * config.num_iterations
    return batch_size * max(steps_per_batch, config.gradient_accumulation_steps)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {BATCH: 8, ACCUMULATION: 2, STEPS: 3},
            "Set steps_per_generation to a multiple of gradient_accumulation_steps=2$",
        ),
        (
            {BATCH: 8, ACCUMULATION: 4, STEPS: 3, "num_iterations": 2},
            r"Set steps_per_generation \* num_iterations to a multiple of grad.*_steps=4$",
        ),
        (
            {BATCH: 8, ACCUMULATION: 2, GENERATION: 24},
            "^generation_batch_size=24, .* Set generation_batch_size to a multiple of n_step=16$",
        ),
        (
            {BATCH: 8, "H": 4, "num_iterations": 2},
            r"^num_iterations=2: .* contradict n_step=8, H=4 .*\. Remove num_iterations\. .* reuse",
        ),
        (
            {BATCH: 8, STEPS: 2, GENERATION: 32},
            r"n_step=8, H=2 .*\. Remove generation_batch_size\.",
        ),
        ({BATCH: 8, "H": 4, STEPS: 2}, "Remove steps_per_generation, or leave H unset"),
        ({BATCH: 8, "n_step": 16}, "Leave either GRPOTrainer's sizes or n_step and H unset"),
        (
            {BATCH: 6, "num_generations": 4},
            "n_step=6 .* set it to a multiple of 4, directly or by TRL's batch sizes",
        ),
    ],
)
def test_trl_batch_sizes_without_whole_steps_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        RapidConfig(**COMMON | sizes)


@pytest.mark.parametrize(
    ("processes", "H", "n_step", "device_batch_size"),
    [
        (1, 2, 8, 8),
        (4, 1, 4, 1),
        (4, 4, 4, 1),
        (2, 1, 4, 2),
        (8, 2, 4, 1),
        (3, 3, 4, 2),
        (8, 2, 20, 3),
    ],
)
def test_trl_batch_sizes_follow_from_h_and_n_step_with_sharded_groups(
    monkeypatch, processes, H, n_step, device_batch_size
):
    monkeypatch.setattr(RapidConfig, "world_size", processes)
    config = RapidConfig(**VALID | {"H": H, "n_step": n_step})
    for built_config in (config, replace(config, learning_rate=0.1)):
        sizes = [getattr(built_config, name) for name in (BATCH, ACCUMULATION, STEPS, GENERATION)]
        assert sizes == [device_batch_size, 1, H, H * n_step]


def test_inference_batch_must_divide_among_processes(monkeypatch):
    monkeypatch.setattr(RapidConfig, "world_size", 8)
    with pytest.raises(ValueError, match=r"make H \* n_step a multiple of 8"):
        RapidConfig(**VALID | {"H": 1, "n_step": 4})
