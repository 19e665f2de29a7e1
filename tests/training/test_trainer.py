"""RapidTrainer on a toy model: what is sampled, split, and learned from."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOTrainer

from rapid import RapidConfig, RapidTrainer
from rapid.training.clock import PhaseClock
from rapid.training.rewards import StreamedRewards
from tests.training.conformance.test_interface import CHAT
from tests.training.loops import (
    COMMON,
    ROUNDING,
    ScriptedTrainer,
    assert_same_learning,
    get_initial_weights,
    get_weights,
    logged_values,
    make_trainer,
)

PROMPTS = 16


def parity(completions, **_):
    """A reward that an untrained byte model earns about half of the time."""
    return [float(sum(map(ord, text)) % 2) for text in completions]


def trainer(toy_model, tmp_path, reward=parity, **settings):
    sizes = {"H": 2, "n_step": 8, "micro_batch_size": 4, "max_completion_length": 6}
    epoch = {"learning_rate": 0.3, "num_train_epochs": 1}
    config = RapidConfig(str(tmp_path / "out"), **COMMON | sizes | epoch | settings)
    return make_trainer(RapidTrainer, config, toy_model, reward, PROMPTS)


def trained(*args, **settings):
    """A trainer after training. Built and trained at once: building it sets the seed."""
    run = trainer(*args, **settings)
    run.train()
    return run


def test_an_epoch_has_a_step_for_each_n_step_and_the_first_of_h_is_on_policy(toy_model, tmp_path):
    run = trainer(toy_model, tmp_path)
    seconds = run.train().metrics["train_runtime"]
    assert run.state.global_step == PROMPTS * 4 / 8
    assert run.completions_sampled == PROMPTS * 4
    staleness = logged_values(run, "rapid/staleness")
    assert max(staleness[0::2]) < ROUNDING < min(staleness[1::2])
    assert logged_values(run, "rapid/sampler_mismatch") == pytest.approx([0] * 4, abs=ROUNDING)
    phases = run.clock.seconds
    assert set(phases) == {"sampling", "grading", "backpropagation", "other"}
    assert 0 < sum(logged_values(run, "step_time")) <= seconds
    assert 0.5 * seconds < sum(phases.values()) <= 1.05 * seconds


def test_log_mu_of_the_sampler_is_what_a_forward_pass_finds(toy_model, tmp_path):
    settings = {"temperature": 0.7, "sampling_batch_size": 8}
    known = trained(toy_model, tmp_path, **settings)
    found = trained(toy_model, tmp_path, reuse_logp=False, **settings)
    assert_same_learning(get_weights(known), get_weights(found), get_initial_weights(toy_model))
    one, other = known.last_pass[1], found.last_pass[1]
    mask = one["completion_mask"].bool()
    torch.testing.assert_close(
        one["behavior_logp"][mask].double(), other["behavior_logp"][mask], rtol=0, atol=ROUNDING
    )


def test_no_forward_pass_finds_log_mu_again(toy_model, tmp_path):
    passes = {}
    for known in (True, False):
        plain = {"skip_zero_groups": False, "share_prefill": False}
        run = trainer(toy_model, tmp_path, reuse_logp=known, **plain)
        without_gradient = []
        run.model.model.register_forward_hook(
            lambda *_, seen=without_gradient: seen.append(torch.is_grad_enabled())
        )
        run.train()
        passes[known] = without_gradient.count(False)
    assert passes[True] == passes[False] - PROMPTS  # of a group each


@pytest.mark.parametrize("objective", ["rapid", "dapo"])
def test_the_size_of_a_pass_does_not_change_what_is_learned(toy_model, tmp_path, objective):
    small, large = (
        trained(toy_model, tmp_path, micro_batch_size=size, objective=objective) for size in (4, 8)
    )
    assert_same_learning(get_weights(small), get_weights(large), get_initial_weights(toy_model))
    first, *_ = small.state.log_history
    names = [name for name in first if name.startswith("rapid/")]
    assert "rapid/clip_fraction" in names and min(logged_values(small, "rapid/run")) < 1
    for name in names:
        found, expected = logged_values(small, name), logged_values(large, name)
        assert found == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING), name


@pytest.mark.parametrize(
    ("settings", "passes"), [({}, 2), ({"pack": False}, 2), ({"token_budget": 50}, 4)]
)
def test_a_pass_is_as_large_as_asked_for(train, toy_model, settings, passes):
    """Of 16 completions, 8 or, with prompts of 8 tokens, 50 tokens."""
    made = []

    class Counted(ScriptedTrainer):
        equal_lengths = True

        def compute_loss(self, model, inputs, *others, **named):
            made.append(len(inputs["completion_ids"]))
            return super().compute_loss(model, inputs, *others, **named)

    model = AutoModelForCausalLM.from_pretrained(toy_model)
    sizes = {"H": 1, "n_step": 16, "micro_batch_size": 8, "skip_zero_groups": False}
    train(Counted, model, **sizes | settings)
    assert made == [16 // passes] * passes


@pytest.mark.parametrize(("rows", "at_a_time", "tells"), [(8, 4, True), (6, 1, False)])
def test_a_sampler_is_asked_for_groups_only_where_it_has_whole_ones(
    toy_model, tmp_path, monkeypatch, rows, at_a_time, tells
):
    """And what it answers, with its log-probabilities or without, is put together again."""
    asked = []

    def note(self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images):
        asked.append((num_generations, has_tool_images))
        return prompt_ids, [[-0.5 * one[0]] for one in prompt_ids] if tells else None

    run = trainer(toy_model, tmp_path, sampling_batch_size=4)
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", note)
    prompts = [[row] for row in range(rows)]
    found = run._generate_single_turn(prompts, None, {}, 4)
    assert asked == [(at_a_time, False)] * 2
    assert found == (prompts, [[-0.5 * row] for row in range(rows)] if tells else None)


@pytest.mark.parametrize(("chat", "beams"), [(False, 1), (True, 1), (False, 2)])
def test_a_completion_is_graded_when_it_ends(toy_model, tmp_path, monkeypatch, chat, beams):
    """As what it is in the end; of beams not before all are found."""
    settings = {"H": 1, "n_step": 16, "max_steps": 1, "max_completion_length": 64}
    settings |= {"sampling_batch_size": 8, "grading_workers": 1}
    reward = parity if not chat else lambda completions, **_: [0.0]
    run = trainer(toy_model, tmp_path, reward, generation_kwargs={"num_beams": beams}, **settings)
    if chat:
        run.processing_class.chat_template = CHAT
        rows = [{"prompt": [{"role": "user", "content": f"prompt {i}"}]} for i in range(PROMPTS)]
        run.train_dataset = Dataset.from_list(rows)
    while_sampling, then, expected, sampling = [], [], [], []
    generate, submit, collect = run.model.generate, StreamedRewards.submit, StreamedRewards.collect

    def watch(**inputs):
        sampling.append(1)
        found = generate(**inputs)
        sampling.clear()
        return found

    def note(self, row, example, *completion):
        (while_sampling if sampling else then).append((row, example["prompt"], *completion))
        submit(self, row, example, *completion)

    def finish(self, examples, *completions):
        assert not expected
        prompts = [example["prompt"] for example in examples]
        expected.extend(zip(range(16), prompts, *completions, strict=True))
        assert then == expected
        return collect(self, examples, *completions)

    run.model.generate = watch
    monkeypatch.setattr(StreamedRewards, "submit", note)
    monkeypatch.setattr(StreamedRewards, "collect", finish)
    run.train()
    assert len(expected) == 16
    assert all(one in expected for one in while_sampling)
    assert any(row >= 8 for row, *_ in while_sampling) == (beams == 1)


def test_a_step_is_framed_as_trainer_frames_one(toy_model, tmp_path, monkeypatch):
    """After evaluations, too. A second passes in the optimizer's step, and in a callback's."""
    seconds, modes, emptied, exchanged = [], [], [], []

    class Modal(torch.optim.SGD):
        """Has two modes, as schedule-free optimizers do."""

        def train(self):
            self.mode = "train"

        def eval(self):
            self.mode = "eval"

        def step(self, closure=None):
            seconds.append(1)
            modes.append((self.mode, run.model.training))
            return super().step(closure)

    class Evaluates(TrainerCallback):
        def on_step_end(self, *_, **__):
            seconds.append(1)
            run.evaluate(run.train_dataset.select(range(1)))

    def watch(*given):
        if run.model.training:
            exchanged.append(run.accelerator.sync_gradients)
        return loss_of(*given)

    passes = {"skip_zero_groups": False, "pack": False}  # two in each step
    run = trainer(toy_model, tmp_path, max_steps=3, torch_empty_cache_steps=2, **passes)
    loss_of, run.compute_loss = run.compute_loss, watch
    monkeypatch.setattr(
        "rapid.training.trl.sampling_trainer.clear_device_cache",
        lambda: emptied.append(run.state.global_step),
    )
    run.add_callback(Evaluates())
    run.optimizer = Modal(run.model.parameters(), lr=0.1)
    run.clock = PhaseClock(lambda: len(seconds))
    run.train()
    assert modes == [("train", True)] * 3
    assert exchanged == [False, True] * 3  # gradients between processes
    assert {name: value for name, value in run.clock.seconds.items() if value} == {
        "backpropagation": 3
    }
    assert emptied == [0, 2]


def test_it_learns_what_is_rewarded(toy_model, tmp_path):
    """The reward of a letter's share goes up by more than noise."""

    def share(completions, **_):
        return [text.count("e") / 6 for text in completions]

    settings = {"n_step": 32, "optim": "adamw_torch", "learning_rate": 3e-2, "num_train_epochs": 12}
    run = trained(toy_model, tmp_path, reward=share, **settings)
    rewards = logged_values(run, "rapid/accuracy")
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.1


def test_fewer_prompts_than_an_inference_batch_takes_are_refused(toy_model, tmp_path):
    with pytest.raises(ValueError, match=r"16 prompts, but one inference batch takes 32"):
        trainer(toy_model, tmp_path, H=4, n_step=32)


def test_an_interrupted_batch_leaves_the_next_one_no_rewards(toy_model, tmp_path):
    class Interrupted(RapidTrainer):
        def _calculate_rewards(self, *given):
            if not vars(self).get("again"):
                self.again = True
                raise KeyboardInterrupt
            return super()._calculate_rewards(*given)

    config = RapidConfig(
        str(tmp_path), **COMMON, H=2, n_step=8, micro_batch_size=4, max_completion_length=6,
        grading_workers=2, max_steps=2,
    )  # fmt: skip
    trainer = make_trainer(Interrupted, config, toy_model, parity, PROMPTS)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.train()
    assert [*trainer._logs["rewards"]["parity"]] == parity([*trainer._logs["completion"]])
