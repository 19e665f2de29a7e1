"""RapidTrainer replaces GRPOTrainer: same arguments, overrides, metrics and model card."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rapid import RapidConfig, RapidTrainer
from rapid.training.overview import describe_optimizer
from tests.training.loops import (
    COMMON,
    RecordingTrainer,
    ScriptedTrainer,
    assert_same_training,
    build_rapid_trainer,
    get_weights,
    logged_values,
    text_sum_reward,
    train_rapid,
)

PROMPTS = Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(32)])
TRL_SETTINGS = COMMON | {
    "per_device_train_batch_size": 8,
    "steps_per_generation": 2,
    "max_completion_length": 6,
    "max_steps": 2,
    "learning_rate": 0.05,
    "dataloader_pin_memory": False,
}


def test_grpo_script_runs_with_swapped_class_names(toy_model, tmp_path):
    def train(config_class, trainer_class):
        args = config_class(str(tmp_path), **TRL_SETTINGS)
        tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
        trainer = trainer_class(str(toy_model), text_sum_reward, args, PROMPTS, None, tokenizer)
        trainer.train()
        return trainer

    trl_trainer, rapid_trainer = train(GRPOConfig, GRPOTrainer), train(RapidConfig, RapidTrainer)
    assert rapid_trainer.state.global_step == trl_trainer.state.global_step == 2
    assert rapid_trainer.state.num_train_epochs == trl_trainer.state.num_train_epochs
    assert (rapid_trainer.args.n_step, rapid_trainer.args.H) == (8, 2)
    assert rapid_trainer.completions_sampled == 16
    converted = train(GRPOConfig, RapidTrainer)
    assert (converted.args.n_step, converted.args.H) == (8, 2)
    assert torch.equal(get_weights(converted), get_weights(rapid_trainer))
    rapid_names, trl_names = (
        {*rapid_trainer.state.log_history[0]},
        {*trl_trainer.state.log_history[0]},
    )
    assert trl_names - rapid_names == {"clip_ratio/low_min", "clip_ratio/high_max"}
    assert all(name.startswith("rapid/") for name in rapid_names - trl_names)


def test_override_of_compute_loss_is_used(toy_model, tmp_path):
    class HalvedLossTrainer(RapidTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return 0.5 * super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    full, halved = (
        train_rapid(toy_model, tmp_path, "pg", trainer_class=trainer_class, max_steps=1)
        for trainer_class in (RapidTrainer, HalvedLossTrainer)
    )
    assert logged_values(halved, "grad_norm")[0] == pytest.approx(
        logged_values(full, "grad_norm")[0] / 2
    )


@pytest.mark.parametrize("objective", ["pg", "rapid", "dapo", "trl"])
@pytest.mark.parametrize("size", [16, 4, 2])
def test_a_custom_loss_that_adds_to_the_loss_keeps_its_gradient(
    toy_model, tmp_path, objective, size
):
    """The sum of weights that it adds is counted once, for every size of micro-batches."""

    class PenaltyTrainer(RecordingTrainer):
        def _compute_loss(self, model, inputs):
            return super()._compute_loss(model, inputs) + sum(p.sum() for p in model.parameters())

    settings = {"H": 1, "max_steps": 1, "micro_batch_size": size, "pack": False}
    plain, penalty = (
        train_rapid(toy_model, tmp_path, objective, trainer_class=trainer_class, **settings)
        for trainer_class in (RecordingTrainer, PenaltyTrainer)
    )
    difference = penalty.gradients[0] - plain.gradients[0]
    torch.testing.assert_close(difference, torch.ones_like(difference), rtol=0, atol=1e-6)


def test_a_custom_loss_runs_groups_of_equal_rewards(toy_model, tmp_path):
    rows = []

    class CountingTrainer(RapidTrainer):
        def _compute_loss(self, model, inputs):
            rows.append(len(inputs["rewards"]))
            return sum(p.sum() for p in model.parameters())

    def reward(completions, **_):
        return [1.0] * len(completions)

    settings = {"H": 1, "max_steps": 1, "micro_batch_size": 8, "pack": False}
    trainer = train_rapid(
        toy_model, tmp_path, "rapid", reward, trainer_class=CountingTrainer, **settings
    )
    assert rows == [8, 8]
    assert not logged_values(trainer, "rapid/run")  # nothing tells it which groups have a gradient


def test_memory_that_runs_out_in_one_group_of_a_custom_loss_ends_the_run(toy_model, tmp_path):
    """A group of a custom loss is not divided, so that smaller micro-batches are not tried."""

    class FullMemoryTrainer(RapidTrainer):
        def _compute_loss(self, model, inputs):
            raise MemoryError("full")

    with pytest.raises(MemoryError, match="full"):
        train_rapid(toy_model, tmp_path, "rapid", trainer_class=FullMemoryTrainer)


def test_infinite_loss_ends_the_run(toy_model, tmp_path):
    class InfiniteLossTrainer(RapidTrainer):
        def compute_loss(self, *args, **kwargs):
            return super().compute_loss(*args, **kwargs) + torch.inf

    with pytest.raises(FloatingPointError, match="step 1: the loss is inf"):
        train_rapid(toy_model, tmp_path, "rapid", trainer_class=InfiniteLossTrainer)


def test_unsupported_datasets_are_refused_with_all_reasons(toy_model, tmp_path):
    config = RapidConfig(str(tmp_path), dynamic_sampling_rounds=2, **COMMON)
    stream = PROMPTS.add_column("image", [0] * len(PROMPTS)).to_iterable_dataset()
    with pytest.raises(
        ValueError, match=r"(?s)remove images from.*use a Dataset in place of the stream"
    ):
        RapidTrainer(str(toy_model), text_sum_reward, config, stream)


def test_caches_and_padding_do_not_change_training(toy_model, tmp_path):
    plain = train_rapid(toy_model, tmp_path, "rapid", max_steps=4, H=2)
    for settings in (
        {"cache_implementation": "static"},
        {"pad_to_multiple_of": 16, "pack": False},
        {"pad_to_multiple_of": 16},
        {"generation_kwargs": {"use_cache": False}},
    ):
        trainer = train_rapid(toy_model, tmp_path, "rapid", max_steps=4, H=2, **settings)
        assert_same_training(trainer, plain, toy_model)


@pytest.mark.parametrize(
    ("objective", "name", "paper"),
    [
        ("rapid", "RAPID", "RAPID: An Efficient Reinforcement Learning Algorithm"),
        ("dapo", "DAPO", None),
        ("trl", "GRPO", "DeepSeekMath"),
    ],
)
def test_model_card_cites_paper_of_algorithm(toy_model, tmp_path, objective, name, paper):
    build_rapid_trainer(toy_model, tmp_path, objective).create_model_card("mine")
    card = (tmp_path / "README.md").read_text()
    assert f"This model was trained with {name}" in card
    for title in ("RAPID: An Efficient Reinforcement Learning Algorithm", "DeepSeekMath"):
        assert (title in card) == (title == paper)


@pytest.mark.parametrize(("objective", "H"), [("rapid", 1), ("pg", 2), ("trl", 2)])
def test_nothing_is_learned_if_all_completions_are_truncated(toy_model, tmp_path, objective, H):
    """Scripted completions never end; Adam would turn the smallest gradient into a step."""
    settings = {"trainer_class": ScriptedTrainer, "mask_truncated_completions": True, "H": H}
    trainer = build_rapid_trainer(
        toy_model, tmp_path, objective, max_steps=2, optim="adamw_torch", **settings
    )
    start = get_weights(trainer)
    trainer.train()
    assert logged_values(trainer, "completions/clipped_ratio") == [1] * (2 // H)
    assert logged_values(trainer, "grad_norm") == [0, 0]
    assert torch.equal(get_weights(trainer), start)


def test_dapo_overlong_filtering_masks_truncated_completions(toy_model, tmp_path):
    config = build_rapid_trainer(
        toy_model, tmp_path, "dapo", parameters={"overlong_filtering": True}
    ).args
    assert config.mask_truncated_completions
    assert config.settings.overlong_filtering
    assert not build_rapid_trainer(toy_model, tmp_path, "dapo").args.mask_truncated_completions


@pytest.mark.parametrize(
    ("objective", "settings", "advantages"),
    [
        ("rloo", {}, lambda r: r - (r.sum(1, keepdim=True) - r) / 3),
        ("topr", {}, lambda r: r - r.mean(1, keepdim=True)),
        ("topr", {"parameters": {"offset": 0.5}}, lambda r: r - 0.5),
        ("rapid", {}, lambda r: r - r.mean(1, keepdim=True)),
        ("rapid", {"eta": 0.5}, lambda r: r - 0.5 * r.mean(1, keepdim=True)),
        ("rapid", {"baseline": "others"}, lambda r: r - (r.sum(1, keepdim=True) - r) / 3),
        ("rapid", {"baseline": "none"}, lambda r: r),
        ("pg", {}, lambda r: r - r.mean(1, keepdim=True)),
        ("grpo", {}, lambda r: (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)),
    ],
)
def test_completions_table_has_advantages_of_objective(
    toy_model, tmp_path, objective, settings, advantages
):
    settings = {"H": 2, "max_steps": 2, "reward": "partial_reward"} | settings
    trainer = train_rapid(toy_model, tmp_path, objective, per_device_eval_batch_size=8, **settings)
    trainer.evaluate(PROMPTS.select(range(2)))  # the table still has rows of training
    rewards = torch.tensor(trainer._logs["rewards"]["partial_reward"]).view(-1, 4)
    graded = ~rewards.isnan().any(1, keepdim=True)
    expected = torch.where(graded, advantages(rewards), 0.0)
    assert len(trainer._logs["prompt"]) == rewards.numel() == 32
    assert expected.any() and not expected.any(1).all()
    logged_advantages = torch.tensor(list(trainer._logs["advantages"])).view(-1, 4)
    torch.testing.assert_close(logged_advantages, expected)


def test_metrics_have_trl_names_in_training_and_evaluation(toy_model, tmp_path):
    trainer = train_rapid(toy_model, tmp_path, "rapid", max_steps=4)
    assert len(logged_values(trainer, "entropy")) == 4
    # The entropy over 258 bytes is about ln 258.
    assert all(4 < value < 6 for value in logged_values(trainer, "entropy"))
    assert logged_values(trainer, "clip_ratio/region_mean") == logged_values(
        trainer, "rapid/clip_fraction"
    )
    assert not logged_values(trainer, "kl")
    for beta in (0.0, 0.1):
        trainer = build_rapid_trainer(
            toy_model, tmp_path, "grpo", beta=beta, per_device_eval_batch_size=8
        )
        metrics = trainer.evaluate(PROMPTS.select(range(4)))
        assert 4 < metrics["eval_entropy"] < 6
        assert metrics["eval_clip_ratio/region_mean"] == 0
        assert ("eval_kl" in metrics) == bool(beta)


def test_masked_completions_do_not_lower_the_entropy(train, toy_model):
    """GRPOTrainer samples the same completions, and runs one micro-batch where RAPID runs four."""
    trl_settings = {"mask_truncated_completions": True, "learning_rate": 0.0, "temperature": 0.5}
    trl_settings |= {"max_completion_length": 90, "per_device_train_batch_size": 16}
    small = {"H": 1, "n_step": 16, "micro_batch_size": 4, "skip_zero_groups": False}
    rapid_settings = trl_settings | small | {"per_device_train_batch_size": None}
    trl_trainer, *rapid_trainers = (
        train(trainer_class, AutoModelForCausalLM.from_pretrained(toy_model), **settings)
        for trainer_class, settings in (
            (GRPOTrainer, trl_settings),
            (RapidTrainer, rapid_settings | {"objective": "rapid"}),
            (RapidTrainer, rapid_settings | {"objective": "pg", "pack": False}),
        )
    )
    (clipped,) = logged_values(trl_trainer, "completions/clipped_ratio")
    assert 0.4 < clipped < 1
    expected = logged_values(trl_trainer, "entropy")
    for trainer in rapid_trainers:
        assert logged_values(trainer, "completions/clipped_ratio") == [clipped]
        assert logged_values(trainer, "entropy") == [pytest.approx(expected[0], rel=1e-4)]


def test_overview_describes_the_optimizer_that_was_passed(tmp_path):
    args = RapidConfig(str(tmp_path), **COMMON | {"learning_rate": 0.1})
    assert describe_optimizer(args) == "sgd, learning rate 0.1 (constant)"
    optimizer = torch.optim.Adagrad([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    assert describe_optimizer(args, optimizer) == "Adagrad, learning rate 0.5 (constant)"
    described = describe_optimizer(args, optimizer, schedule)
    assert described == "Adagrad, learning rate 0.5 (LinearLR)"
