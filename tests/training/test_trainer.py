"""RapidTrainer on a toy model: sampling, grading, micro-batches and optimizer steps."""

import time
from types import SimpleNamespace

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
    assert_same_training,
    get_weights,
    logged_values,
    make_trainer,
)

PROMPTS = 16


def parity_reward(completions, **_):
    """Reward about half of the completions of an untrained byte model."""
    return [float(sum(map(ord, text)) % 2) for text in completions]


def build_trainer(toy_model, tmp_path, reward=parity_reward, **settings):
    sizes = {"H": 2, "n_step": 8, "micro_batch_size": 4, "max_completion_length": 6}
    epoch = {"learning_rate": 0.3, "num_train_epochs": 1}
    config = RapidConfig(str(tmp_path / "out"), **COMMON | sizes | epoch | settings)
    return make_trainer(RapidTrainer, config, toy_model, reward, PROMPTS)


def train_trainer(*args, **settings):
    """Build a trainer, which sets the seed, train it at once and return it."""
    trainer = build_trainer(*args, **settings)
    trainer.train()
    return trainer


def test_epoch_has_expected_steps_and_first_of_h_is_on_policy(toy_model, tmp_path):
    trainer = build_trainer(toy_model, tmp_path)
    seconds = trainer.train().metrics["train_runtime"]
    assert trainer.state.global_step == PROMPTS * 4 / 8
    assert trainer.completions_sampled == PROMPTS * 4
    staleness = logged_values(trainer, "rapid/staleness")
    assert max(staleness[0::2]) < ROUNDING < min(staleness[1::2])
    assert logged_values(trainer, "rapid/sampler_mismatch") == pytest.approx([0] * 4, abs=ROUNDING)
    phases = trainer.clock.seconds
    assert set(phases) == {"sampling", "grading", "backpropagation", "other"}
    assert 0 < sum(logged_values(trainer, "step_time")) <= seconds
    assert 0.5 * seconds < sum(phases.values()) <= 1.05 * seconds


def test_sampler_log_mu_matches_forward_pass(toy_model, tmp_path):
    settings = {"temperature": 0.7, "sampling_batch_size": 8}
    sampled = train_trainer(toy_model, tmp_path, **settings)
    recomputed = train_trainer(toy_model, tmp_path, reuse_logp=False, **settings)
    assert_same_training(sampled, recomputed, toy_model)
    sampled_batch, recomputed_batch = sampled.last_pass[1], recomputed.last_pass[1]
    mask = sampled_batch["completion_mask"].bool()
    torch.testing.assert_close(
        sampled_batch["behavior_logp"][mask].double(),
        recomputed_batch["behavior_logp"][mask],
        rtol=0,
        atol=ROUNDING,
    )


@pytest.mark.parametrize("objective", ["rapid", "dapo"])
def test_micro_batch_size_does_not_change_training(toy_model, tmp_path, objective):
    small, large = (
        train_trainer(toy_model, tmp_path, micro_batch_size=size, objective=objective)
        for size in (4, 8)
    )
    assert_same_training(small, large, toy_model)
    first, *_ = small.state.log_history
    names = [name for name in first if name.startswith("rapid/")]
    assert "rapid/clip_fraction" in names and min(logged_values(small, "rapid/run")) < 1
    for name in names:
        values, expected = logged_values(small, name), logged_values(large, name)
        assert values == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING), name


@pytest.mark.parametrize(
    ("settings", "micro_batches"), [({}, 2), ({"pack": False}, 2), ({"token_budget": 50}, 4)]
)
def test_micro_batches_have_requested_size(train, toy_model, settings, micro_batches):
    """Micro-batches of 16 completions have 8 rows or, with prompts of 8 tokens, 50 tokens."""
    sizes_run = []

    class SizeRecorder(ScriptedTrainer):
        equal_lengths = True

        def compute_loss(self, model, inputs, *args, **kwargs):
            sizes_run.append(len(inputs["completion_ids"]))
            return super().compute_loss(model, inputs, *args, **kwargs)

    model = AutoModelForCausalLM.from_pretrained(toy_model)
    sizes = {"H": 1, "n_step": 16, "micro_batch_size": 8, "skip_zero_groups": False}
    train(SizeRecorder, model, **sizes | settings)
    assert sizes_run == [16 // micro_batches] * micro_batches


@pytest.mark.parametrize(
    ("rows", "expected_generations", "has_logps"), [(8, 4, True), (6, 2, False)]
)
def test_sampler_gets_group_size_only_for_whole_groups(
    toy_model, tmp_path, monkeypatch, rows, expected_generations, has_logps
):
    """The parts that it returns are concatenated, with log-probabilities or without."""
    calls = []

    def record_call(self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images):
        calls.append((num_generations, has_tool_images))
        return prompt_ids, [[-0.5 * ids[0]] for ids in prompt_ids] if has_logps else None

    trainer = build_trainer(toy_model, tmp_path, sampling_batch_size=4)
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", record_call)
    prompts = [[row] for row in range(rows)]
    output = trainer._generate_single_turn(prompts, None, {}, 4)
    assert calls == [(expected_generations, False)] * 2
    assert output == (prompts, [[-0.5 * row] for row in range(rows)] if has_logps else None)


@pytest.mark.parametrize(
    ("sampling_batch_size", "group_size", "first_row", "rows"),
    [
        (None, 4, 0, 16),
        (4, 8, 0, 16),  # groups of evaluation that are larger than a batch
        (12, 8, 0, 32),  # batches that end within groups
        (6, 4, 0, 22),
        (5, 4, 0, 16),
        (4, 4, 6, 6),  # a process whose first row is within a group
        (4, 8, 12, 12),
    ],
)
def test_server_samples_from_prompt_of_each_row(
    toy_model, tmp_path, monkeypatch, sampling_batch_size, group_size, first_row, rows
):
    """TRL sends a vLLM server each num_generations-th prompt, to be sampled num_generations times.

    The completion here is the prompt.
    """

    def sample_on_server(self, prompt_ids, _, __, num_generations, ___):
        sent = prompt_ids[::num_generations]
        return [ids for ids in sent for _ in range(num_generations)][: len(prompt_ids)], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", sample_on_server)
    trainer = build_trainer(toy_model, tmp_path, sampling_batch_size=sampling_batch_size)
    prompts = [[row // group_size] for row in range(first_row, first_row + rows)]
    assert trainer._generate_single_turn(prompts, None, {}, group_size) == (prompts, None)


@pytest.mark.parametrize(
    ("settings", "uses_vllm", "note"),
    [
        ({}, False, ", 16 at once: set sampling_batch_size below 16, per process"),
        ({"sampling_batch_size": 1}, False, ", 1 at once: lower max_completion_length=6"),
        ({}, True, "lower vllm_gpu_memory_utilization=0.3, vLLM's share of the GPU's memory"),
    ],
)
def test_memory_that_runs_out_in_sampling_is_explained(
    toy_model, tmp_path, monkeypatch, settings, uses_vllm, note
):
    def run_out(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    trainer = build_trainer(toy_model, tmp_path, **settings)
    if uses_vllm:
        trainer.use_vllm, trainer.vllm_generation = True, SimpleNamespace(mode="server")
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", run_out)
    with pytest.raises(torch.OutOfMemoryError) as error:
        trainer.train()
    assert any(text.endswith(note) for text in error.value.__notes__)


def test_grading_while_sampling_trains_to_the_same_bits(toy_model, tmp_path):
    """Verdicts that take time arrive in another order than that of the batch."""

    def slow_reward(completions, **_):
        rewards = parity_reward(completions)
        time.sleep(0.002 * sum(rewards))
        return rewards

    settings = {"reward": slow_reward, "max_completion_length": 32}
    after, beside = (
        train_trainer(toy_model, tmp_path, grading_workers=workers, **settings)
        for workers in (0, 3)
    )
    assert torch.equal(get_weights(after), get_weights(beside))
    rewards = [logged_values(trainer, "reward") for trainer in (after, beside)]
    assert rewards[0] == rewards[1] and min(rewards[0]) > 0


@pytest.mark.parametrize(("chat", "beams"), [(False, 1), (True, 1), (False, 2)])
def test_completion_is_graded_when_it_ends(toy_model, tmp_path, monkeypatch, chat, beams):
    """With beam search, completions are graded only after all of them have ended."""
    settings = {"H": 1, "n_step": 16, "max_steps": 1, "max_completion_length": 64}
    settings |= {"sampling_batch_size": 8, "grading_workers": 1}
    reward = parity_reward if not chat else lambda completions, **_: [0.0]
    trainer = build_trainer(
        toy_model, tmp_path, reward, generation_kwargs={"num_beams": beams}, **settings
    )
    if chat:
        trainer.processing_class.chat_template = CHAT
        rows = [{"prompt": [{"role": "user", "content": f"prompt {i}"}]} for i in range(PROMPTS)]
        trainer.train_dataset = Dataset.from_list(rows)
    while_sampling, afterwards, expected, is_sampling = [], [], [], []
    generate = trainer.model.generate
    submit, collect = StreamedRewards.submit, StreamedRewards.collect

    def generate_watched(**inputs):
        is_sampling.append(1)
        output = generate(**inputs)
        is_sampling.clear()
        return output

    def submit_watched(self, row, example, *completion):
        (while_sampling if is_sampling else afterwards).append(
            (row, example["prompt"], *completion)
        )
        submit(self, row, example, *completion)

    def collect_watched(self, examples, *completions):
        assert not expected
        prompts = [example["prompt"] for example in examples]
        expected.extend(zip(range(16), prompts, *completions, strict=True))
        assert afterwards == expected
        return collect(self, examples, *completions)

    trainer.model.generate = generate_watched
    monkeypatch.setattr(StreamedRewards, "submit", submit_watched)
    monkeypatch.setattr(StreamedRewards, "collect", collect_watched)
    trainer.train()
    assert len(expected) == 16
    assert all(completion in expected for completion in while_sampling)
    assert any(row >= 8 for row, *_ in while_sampling) == (beams == 1)


def test_step_sets_modes_syncs_and_cache_like_transformers(toy_model, tmp_path, monkeypatch):
    """Evaluations do not change it. Optimizer steps and the callback take a second of the clock."""
    seconds, modes, emptied_at, syncs = [], [], [], []

    class TwoModeOptimizer(torch.optim.SGD):
        """Optimizer with two modes, like schedule-free optimizers."""

        def train(self):
            self.mode = "train"

        def eval(self):
            self.mode = "eval"

        def step(self, closure=None):
            seconds.append(1)
            modes.append((self.mode, trainer.model.training))
            return super().step(closure)

    class EvaluateEachStep(TrainerCallback):
        def on_step_end(self, *_, **__):
            seconds.append(1)
            trainer.evaluate(trainer.train_dataset.select(range(1)))

    def record_sync(*args):
        if trainer.model.training:
            syncs.append(trainer.accelerator.sync_gradients)
        return compute_loss(*args)

    two_micro_batches = {"skip_zero_groups": False, "pack": False}
    trainer = build_trainer(
        toy_model, tmp_path, max_steps=3, torch_empty_cache_steps=2, **two_micro_batches
    )
    compute_loss, trainer.compute_loss = trainer.compute_loss, record_sync
    monkeypatch.setattr(
        "rapid.training.trl.sampling_trainer.clear_device_cache",
        lambda: emptied_at.append(trainer.state.global_step),
    )
    trainer.add_callback(EvaluateEachStep())
    trainer.optimizer = TwoModeOptimizer(trainer.model.parameters(), lr=0.1)
    trainer.clock = PhaseClock(lambda: len(seconds))
    trainer.train()
    assert modes == [("train", True)] * 3
    assert syncs == [False, True] * 3  # processes exchange gradients with the last micro-batch only
    assert {name: value for name, value in trainer.clock.seconds.items() if value} == {
        "backpropagation": 3
    }
    assert emptied_at == [0, 2]


def test_training_increases_reward(toy_model, tmp_path):
    """The mean of a reward for a letter's share rises by more than noise."""

    def letter_share_reward(completions, **_):
        return [text.count("e") / 6 for text in completions]

    settings = {"n_step": 32, "optim": "adamw_torch", "learning_rate": 3e-2, "num_train_epochs": 12}
    trainer = train_trainer(toy_model, tmp_path, reward=letter_share_reward, **settings)
    rewards = logged_values(trainer, "rapid/accuracy")
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.1


def test_too_few_prompts_for_an_inference_batch_are_refused(toy_model, tmp_path):
    with pytest.raises(ValueError, match=r"16 prompts, but one inference batch takes 32"):
        build_trainer(toy_model, tmp_path, H=4, n_step=32)


def test_interrupted_batch_does_not_change_later_rewards(toy_model, tmp_path):
    class Interrupted(RapidTrainer):
        def _calculate_rewards(self, *args):
            if not vars(self).get("was_interrupted"):
                self.was_interrupted = True
                raise KeyboardInterrupt
            return super()._calculate_rewards(*args)

    config = RapidConfig(
        str(tmp_path), **COMMON, H=2, n_step=8, micro_batch_size=4, max_completion_length=6,
        grading_workers=2, max_steps=2,
    )  # fmt: skip
    trainer = make_trainer(Interrupted, config, toy_model, parity_reward, PROMPTS)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.train()
    expected = parity_reward([*trainer._logs["completion"]])
    assert [*trainer._logs["rewards"]["parity_reward"]] == expected


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_reward_function_changes_only_its_own_rows(toy_model, tmp_path, kind):
    """Arrays of a row are not shared with other completions of the prompt or with later epochs."""
    seen = []

    def change_scores(completions, scores, **_):
        seen.extend(row.tolist() for row in scores)
        for row in scores:
            row += 1
        return parity_reward(completions)

    rows = [{"prompt": f"prompt {i}", "scores": [0.0, 0.0]} for i in range(4)]
    trainer = build_trainer(toy_model, tmp_path, change_scores, num_train_epochs=2)
    trainer.train_dataset = Dataset.from_list(rows).with_format(kind)
    trainer.train()
    assert seen == [[0.0, 0.0]] * 32


def test_length_counts_truncated_completions_that_are_masked(toy_model, tmp_path):
    settings = {"objective": "dapo", "mask_truncated_completions": True, "max_steps": 1}
    trainer = train_trainer(toy_model, tmp_path, **settings | {"H": 1})
    assert logged_values(trainer, "completions/clipped_ratio")[0] > 0
    lengths = [logged_values(trainer, name) for name in ("rapid/length", "completions/mean_length")]
    assert lengths[0] == lengths[1]
