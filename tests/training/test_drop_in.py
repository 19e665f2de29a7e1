"""RapidTrainer is called, extended and read like GRPOTrainer."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rapid import RapidConfig, RapidTrainer
from tests.training.loops import (
    COMMON,
    ScriptedTrainer,
    assert_learned_alike,
    build,
    digits_sum,
    logged,
    run,
    untrained,
    weights,
)

PROMPTS = Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(32)])
TRL = COMMON | {
    "per_device_train_batch_size": 8,
    "steps_per_generation": 2,
    "max_completion_length": 6,
    "max_steps": 2,
    "learning_rate": 0.05,
    "dataloader_pin_memory": False,
}


def test_a_script_for_grpo_trainer_runs_with_the_names_swapped(toy_model, tmp_path):
    def script(config, trainer):
        args = config(str(tmp_path), **TRL)
        tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
        made = trainer(str(toy_model), digits_sum, args, PROMPTS, None, tokenizer)
        made.train()
        return made

    theirs, ours = script(GRPOConfig, GRPOTrainer), script(RapidConfig, RapidTrainer)
    assert ours.state.global_step == theirs.state.global_step == 2
    assert ours.state.num_train_epochs == theirs.state.num_train_epochs
    assert (ours.args.n_step, ours.args.H, ours.completions_sampled) == (8, 2, 16)
    converted = script(GRPOConfig, RapidTrainer)
    assert (converted.args.n_step, converted.args.H) == (8, 2)
    assert torch.equal(weights(converted), weights(ours))
    names, known = ({*ours.state.log_history[0]}, {*theirs.state.log_history[0]})
    assert known - names == {"clip_ratio/low_min", "clip_ratio/high_max"}
    assert all(name.startswith("rapid/") for name in names - known)


def test_an_override_of_compute_loss_is_the_loss(toy_model, tmp_path):
    class Half(RapidTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return 0.5 * super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    whole, half = (
        run(toy_model, tmp_path, "pg", trainer=kind, max_steps=1) for kind in (RapidTrainer, Half)
    )
    assert logged(half, "grad_norm")[0] == pytest.approx(logged(whole, "grad_norm")[0] / 2)


def test_a_loss_that_is_no_number_ends_the_run(toy_model, tmp_path):
    class Infinite(RapidTrainer):
        def compute_loss(self, *args, **named):
            return super().compute_loss(*args, **named) + torch.inf

    with pytest.raises(FloatingPointError, match="step 1: the loss is inf"):
        run(toy_model, tmp_path, "rapid", trainer=Infinite)


def test_what_is_not_trained_on_is_refused_at_once_and_together(toy_model, tmp_path):
    config = RapidConfig(str(tmp_path), dynamic_sampling_rounds=2, **COMMON)
    stream = PROMPTS.add_column("image", [0] * len(PROMPTS)).to_iterable_dataset()
    with pytest.raises(
        ValueError, match=r"(?s)remove images from.*use a Dataset in place of the stream"
    ):
        RapidTrainer(str(toy_model), digits_sum, config, stream)


def test_caches_and_padding_do_not_change_what_is_learned(toy_model, tmp_path):
    plain = run(toy_model, tmp_path, "rapid", max_steps=4, H=2)
    for settings in (
        {"cache_implementation": "static"},
        {"pad_to_multiple_of": 16, "pack": False},
        {"pad_to_multiple_of": 16},
        {"generation_kwargs": {"use_cache": False}},
    ):
        other = run(toy_model, tmp_path, "rapid", max_steps=4, H=2, **settings)
        assert_learned_alike(weights(other), weights(plain), untrained(toy_model))


@pytest.mark.parametrize(
    ("objective", "name", "paper"),
    [
        ("rapid", "RAPID", "RAPID: An Efficient Reinforcement Learning Algorithm"),
        ("dapo", "DAPO", None),
        ("trl", "GRPO", "DeepSeekMath"),
    ],
)
def test_the_model_card_cites_the_paper_of_the_algorithm(
    toy_model, tmp_path, objective, name, paper
):
    build(toy_model, tmp_path, objective).create_model_card("mine")
    card = (tmp_path / "README.md").read_text()
    assert f"This model was trained with {name}" in card
    for title in ("RAPID: An Efficient Reinforcement Learning Algorithm", "DeepSeekMath"):
        assert (title in card) == (title == paper)


@pytest.mark.parametrize(("objective", "h"), [("rapid", 1), ("pg", 2), ("trl", 2)])
def test_nothing_is_learned_where_all_completions_are_cut_off(toy_model, tmp_path, objective, h):
    """The scripted ones have no end; Adam would make a step of the least gradient."""
    settings = {"trainer": ScriptedTrainer, "mask_truncated_completions": True, "H": h}
    trainer = build(toy_model, tmp_path, objective, max_steps=2, optim="adamw_torch", **settings)
    before = weights(trainer)
    trainer.train()
    assert logged(trainer, "completions/clipped_ratio") == [1] * (2 // h)
    assert logged(trainer, "grad_norm") == [0, 0]
    assert torch.equal(weights(trainer), before)


def test_dapos_overlong_filtering_is_trls_mask(toy_model, tmp_path):
    config = build(toy_model, tmp_path, "dapo", parameters={"overlong_filtering": True}).args
    assert config.mask_truncated_completions
    assert config.settings.overlong_filtering
    assert not build(toy_model, tmp_path, "dapo").args.mask_truncated_completions


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
def test_the_table_of_completions_has_the_objectives_advantages(
    toy_model, tmp_path, objective, settings, advantages
):
    settings = {"H": 2, "max_steps": 2, "reward": "sometimes"} | settings
    trainer = run(toy_model, tmp_path, objective, per_device_eval_batch_size=8, **settings)
    trainer.evaluate(PROMPTS.select(range(2)))  # some rows of the table are of training still
    rewards = torch.tensor(trainer._logs["rewards"]["sometimes"]).view(-1, 4)
    graded = ~rewards.isnan().any(1, keepdim=True)
    expected = torch.where(graded, advantages(rewards), 0.0)
    assert len(trainer._logs["prompt"]) == rewards.numel() == 32
    assert expected.any() and not expected.any(1).all()
    shown = torch.tensor(list(trainer._logs["advantages"])).view(-1, 4)
    torch.testing.assert_close(shown, expected)


def test_metrics_have_trls_names_in_training_and_evaluation(toy_model, tmp_path):
    trainer = run(toy_model, tmp_path, "rapid", max_steps=4)
    assert len(logged(trainer, "entropy")) == 4
    assert all(4 < value < 6 for value in logged(trainer, "entropy"))  # of 258 bytes, about ln 258
    assert logged(trainer, "clip_ratio/region_mean") == logged(trainer, "rapid/clip_fraction")
    assert not logged(trainer, "kl")
    for beta in (0.0, 0.1):
        trainer = build(toy_model, tmp_path, "grpo", beta=beta, per_device_eval_batch_size=8)
        found = trainer.evaluate(PROMPTS.select(range(4)))
        assert 4 < found["eval_entropy"] < 6
        assert found["eval_clip_ratio/region_mean"] == 0
        assert ("eval_kl" in found) == bool(beta)


def test_masked_completions_do_not_lower_the_entropy(train, toy_model):
    """GRPOTrainer samples the same completions, and has one pass of what are four here."""
    settings = {"mask_truncated_completions": True, "learning_rate": 0.0, "temperature": 0.5}
    settings |= {"max_completion_length": 90, "per_device_train_batch_size": 16}
    small = {"H": 1, "n_step": 16, "micro_batch_size": 4, "skip_zero_groups": False}
    ours = settings | small | {"per_device_train_batch_size": None}
    theirs, *mine = (
        train(kind, AutoModelForCausalLM.from_pretrained(toy_model), **given)
        for kind, given in (
            (GRPOTrainer, settings),
            (RapidTrainer, ours | {"objective": "rapid"}),
            (RapidTrainer, ours | {"objective": "pg", "pack": False}),
        )
    )
    (clipped,) = logged(theirs, "completions/clipped_ratio")
    assert 0.4 < clipped < 1
    expected = logged(theirs, "entropy")
    for trainer in mine:
        assert logged(trainer, "completions/clipped_ratio") == [clipped]
        assert logged(trainer, "entropy") == [pytest.approx(expected[0], rel=1e-4)]
