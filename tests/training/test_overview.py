"""The overview of a run has the numbers of the run, and can be silenced."""

import logging
import re
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset, IterableDataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig

from rapid import RapidConfig
from rapid.training import overview
from rapid.training.overview import (
    BatchTime,
    Overview,
    SteadyProgress,
    count_held_bytes,
    describe_devices,
    describe_inference_batch,
    describe_objective,
    describe_setting,
    estimate_seconds_left,
)
from tests.training.loops import ScriptedTrainer, build_rapid_trainer, train_rapid

PROMPTS = [{"prompt": f"prompt {number}"} for number in range(10, 74)]
SIZES = {"n_step": 16, "micro_batch_size": 8, "max_completion_length": 8}
NAME = overview.__name__


def alternating_reward(completions, **_):
    """Give each group of an even number of completions unequal rewards."""
    return [float(place % 2) for place in range(len(completions))]


class CountingTrainer(ScriptedTrainer):
    """Counts what it does: completions sampled, optimizer steps, and backward passes of each."""

    equal_lengths = True

    def __init__(self, *arguments, **named):
        self.sampled, self.passes_by_step = [], []
        super().__init__(*arguments, **named)
        backward = self.accelerator.backward

        def count_backward(*arguments, **named):
            self.passes_by_step[-1] += 1
            backward(*arguments, **named)

        self.accelerator.backward = count_backward

    def training_step(self, *arguments):
        self.passes_by_step.append(0)
        return super().training_step(*arguments)

    def _generate_single_turn(self, prompt_ids, *arguments):
        self.sampled.append([*map(tuple, prompt_ids)])
        return super()._generate_single_turn(prompt_ids, *arguments)


class RaggedTrainer(CountingTrainer):
    equal_lengths = False


@pytest.fixture
def messages(caplog):
    """A function that returns the messages logged by the overview."""
    caplog.set_level(logging.INFO, logger=NAME)
    return lambda: [record.message for record in caplog.records if record.name == NAME]


def find_number(pattern: str, text: str) -> int:
    """Return the number at the place of N in a pattern."""
    match = re.search(pattern.replace("N", r"([\d,]+)"), text)
    assert match, f"{pattern} is not in {text}"
    return int(match[1].replace(",", ""))


# What the run does --------------------------------------------------------------------------------

RUNS = {
    "on-policy": {"H": 1, "max_steps": 3},
    "H": {"H": 4, "max_steps": 8},
    "last-batch-in-part": {"H": 4, "max_steps": 10},
    "epochs": {"H": 2, "num_train_epochs": 2, "max_steps": -1},
    "part-of-epoch": {"H": 2, "num_train_epochs": 0.6, "max_steps": -1},
    "stream": {"H": 2, "max_steps": 5},
    "trl": {"H": 2, "max_steps": 4, "objective": "trl"},
    "trl-split": {"H": 2, "max_steps": 2, "objective": "trl", "micro_batch_size": 3},
    "split-groups": {"H": 2, "max_steps": 4, "micro_batch_size": 3},
    "unpacked": {"H": 2, "max_steps": 4, "pack": False, "micro_batch_size": 12},
    "one-pass": {"H": 2, "max_steps": 4, "micro_batch_size": 64},
}


@pytest.mark.parametrize("name", RUNS)
def test_numbers_are_those_of_the_run(train, toy_model, messages, name):
    dataset = Dataset.from_list(PROMPTS[:32])
    if name == "stream":
        dataset = IterableDataset.from_generator(lambda: iter(PROMPTS))
    trainer = train(
        CountingTrainer,
        str(toy_model),
        alternating_reward,
        {"train_dataset": dataset},
        **SIZES | RUNS[name],
    )
    block = messages()[0]
    steps, prompts = trainer.passes_by_step, [len({*batch}) for batch in trainer.sampled]
    assert block.startswith(f"RapidTrainer: optimizer steps 1 to {len(steps)}\n")
    assert find_number("N steps?, ", block) == len(steps) == trainer.state.global_step
    assert find_number("N batch(?:es)?, ", block) == len(trainer.sampled)
    assert find_number("N completions of [0-9,]+ prompts \\((?:epochs|streamed)", block) == sum(
        map(len, trainer.sampled)
    )
    assert find_number("completions of N prompts \\((?:epochs|streamed)", block) == sum(prompts)
    assert find_number("N completions of .* at once", block) == len(trainer.sampled[0])
    assert find_number("of N prompts .* at once", block) == prompts[0]
    assert {find_number("at most N in a step", block)} == {*steps}
    assert find_number("at most N tokens in a step besides the prompts", block) == 16 * 8
    epochs = "streamed" if name == "stream" else f"epochs: {trainer.state.epoch:.3g}"
    assert f"({epochs})" in block


@pytest.mark.parametrize("settings", [{}, {"pack": False}, {"micro_batch_size": 3}])
def test_savings_and_lengths_only_lower_the_number_of_passes(
    toy_model, tmp_path, messages, settings
):
    trainer = train_rapid(toy_model, tmp_path, "rapid", trainer_class=RaggedTrainer, **settings)
    limit = find_number("at most N in a step", messages()[0])
    assert min(trainer.passes_by_step) < limit
    assert max(trainer.passes_by_step) <= limit


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"token_budget": 100}, "up to 100 tokens in each, forward and backward"),
        ({"token_budget": 100, "pack": False}, "at most 2 in a step, forward and backward, with"),
        ({"micro_batch_size": "auto"}, "as many completions in each, forward and backward, as fit"),
        ({}, "at most 2 in a step, forward and backward, with micro_batch_size=8"),
    ],
)
def test_each_batch_has_its_passes_counted(toy_model, tmp_path, messages, settings, text):
    trainer = train_rapid(
        toy_model, tmp_path, "rapid", H=2, max_steps=5, trainer_class=RaggedTrainer, **settings
    )
    block, *batches = messages()
    assert f"passes     {text}" in block
    passes = trainer.passes_by_step
    assert [find_number("N pass(?:es)?\\)", batch) for batch in batches] == [
        sum(passes[:2]), sum(passes[2:4]), passes[4]
    ]  # fmt: skip
    left = [bool(re.search("; time left: about [0-9.]+s$", batch)) for batch in batches]
    assert left == [True, True, False]
    assert batches[1].startswith("step 4 of 5: an inference batch took ")


def test_resumed_run_says_what_is_left(toy_model, tmp_path, messages):
    saving = {"save_strategy": "steps", "save_steps": 4, "max_steps": 10}
    train_rapid(toy_model, tmp_path, "rapid", **saving)
    trainer = build_rapid_trainer(
        toy_model, tmp_path, "rapid", **saving, trainer_class=CountingTrainer
    )
    before = len(messages())
    trainer.train(str(tmp_path / "checkpoint-4"))
    block = messages()[before]
    assert block.startswith("RapidTrainer: optimizer steps 5 to 10\n")
    assert find_number("N steps, ", block) == len(trainer.passes_by_step) == 6
    assert find_number("N batches, ", block) == len(trainer.sampled) == 2


@pytest.mark.parametrize(
    ("settings", "optimizer"),
    [
        ({}, "adamw_torch"),
        ({"adapter": "lora"}, "adamw_torch"),
        ({"objective": "grpo", "beta": 0.1}, "adamw_torch"),
        ({}, "sgd"),
    ],
)
def test_memory_is_what_weights_gradients_and_optimizer_hold(
    toy_model, tmp_path, settings, optimizer
):
    held = []

    class Measure(TrainerCallback):
        def on_optimizer_step(self, *_, **__):
            parameters = [*trainer.model.parameters()]
            if trainer.ref_model is not None:
                parameters += trainer.ref_model.parameters()
            gradients = [p.grad for p in parameters if p.grad is not None]
            states = trainer.optimizer.optimizer.state.values()
            moments = [
                value for state in states for value in state.values()
                if isinstance(value, torch.Tensor) and value.dim()
            ]  # fmt: skip
            held.append(sum(tensor.nbytes for tensor in [*parameters, *gradients, *moments]))

    trainer = build_rapid_trainer(
        toy_model,
        tmp_path,
        **{"objective": "rapid"} | settings,
        optim=optimizer,
        max_steps=1,
        reward=alternating_reward,
    )
    trainer.add_callback(Measure())
    trainer.train()
    assert held == [count_held_bytes(trainer)]


@pytest.mark.parametrize(
    ("uses_vllm", "uses_adam", "text"),
    [
        (False, True, "4.0 GB of 79.0 GB for weights, gradients and Adam's moments; activations "
         "and buffers need further memory"),
        (True, False, "4.0 GB of 79.0 GB for weights and gradients; activations and buffers need "
         "further memory; vLLM may take 30% of the 79.0 GB"),
    ],
)  # fmt: skip
def test_memory_of_a_gpu_is_shown_with_vllms_share(monkeypatch, uses_vllm, uses_adam, text):
    monkeypatch.setattr(overview, "count_held_bytes", lambda _: 4_000_000_000)
    monkeypatch.setattr(overview, "get_total_memory", lambda _: 79_000_000_000)
    monkeypatch.setattr(overview, "uses_adam", lambda _: uses_adam)
    trainer = SimpleNamespace(
        _uses_deepspeed=False,
        accelerator=SimpleNamespace(device=torch.device("cuda")),
        use_vllm=uses_vllm,
        args=SimpleNamespace(vllm_mode="colocate", vllm_gpu_memory_utilization=0.3),
    )
    assert overview.describe_memory(trainer) == text


def test_numbers_of_each_process_are_marked_if_there_are_several():
    accelerator = SimpleNamespace(num_processes=2, device=torch.device("cpu"))
    assert re.fullmatch(r"cpu, 2 processes, \d+ threads? each", describe_devices(accelerator))
    args = SimpleNamespace(H=2, n_step=16, sampling_batch_size=8, dynamic_sampling_rounds=1)
    trainer = SimpleNamespace(
        accelerator=accelerator, args=args, num_generations=4, rollout_func=None, use_vllm=False
    )
    text = describe_inference_batch(trainer)
    assert text.endswith("sampled 8 at a time in each process by transformers")


# Where values come from ---------------------------------------------------------------------------

TRL_SIZES = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}


@pytest.mark.parametrize(
    ("config_class", "settings", "shown"),
    [
        (RapidConfig, {}, {"H": "H=4 (default)", "n_step": "n_step=32 (default)",
                           "micro_batch_size": "micro_batch_size=8 (default)"}),
        (RapidConfig, {"H": 4, "n_step": 32, "micro_batch_size": 8},
         {"H": "H=4", "n_step": "n_step=32", "micro_batch_size": "micro_batch_size=8"}),
        (RapidConfig, {"H": 2, **TRL_SIZES}, {
            "H": "H=2", "n_step": "n_step=8 (from TRL's sizes)",
            "micro_batch_size": "micro_batch_size=4 (per_device_train_batch_size)"}),
        (GRPOConfig, TRL_SIZES, {"H": "H=1 (from TRL's sizes)",
                                 "n_step": "n_step=8 (from TRL's sizes)"}),
    ],
)  # fmt: skip
def test_settings_that_were_not_passed_are_marked(tmp_path, config_class, settings, shown):
    common = {"num_generations": 4, "use_cpu": True, "bf16": False, "report_to": []}
    config = RapidConfig.of(config_class(str(tmp_path), **common, **settings))
    assert {name: describe_setting(config, name) for name in shown} == shown


def test_reuse_is_shown_and_multiplies_steps(toy_model, tmp_path, messages):
    settings = {"H": 2, "reuse": 2, "max_steps": 8}
    train_rapid(toy_model, tmp_path, "rapid", **settings)
    first, *batches = messages()
    assert "steps      H=2 * reuse=2 for each batch, on n_step=16 completions" in first
    assert "8 steps, 2 batches, 64 completions of 16 prompts" in first
    assert [text.split(":")[0] for text in batches] == ["step 4 of 8", "step 8 of 8"]


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({}, "rapid, eta="),
        ({"objective": "pg"}, "pg"),
        ({"objective": "grpo", "beta": 0.5}, "grpo, "),
        ({"objective": "trl"}, "trl, loss_type="),
        ({"loss_type": "bnpo"}, "trl (because of loss_type), loss_type=bnpo, "),
    ],
)
def test_objective_is_shown_with_its_settings(tmp_path, settings, start):
    config = RapidConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[], **settings)
    text = describe_objective(config)
    assert text.startswith(start)
    for name in {"eta", "beta"} & settings.keys():
        assert f"{name}={settings[name]}" in text


@pytest.mark.parametrize("adapter", [None, "lora"])
def test_trained_share_of_the_model_is_shown(toy_model, tmp_path, messages, adapter):
    trainer = train_rapid(toy_model, tmp_path, "rapid", adapter=adapter, max_steps=1)
    sizes = [(p.numel(), p.requires_grad) for p in trainer.model.parameters()]
    count, trained = sum(n for n, _ in sizes), sum(n for n, is_trained in sizes if is_trained)
    (line,) = re.findall("model +(.+)", messages()[0])
    assert find_number("N parameters in float64", line) == count
    share = f"{trained:,} trained ({trained / count:.2%}, LORA)" if adapter else "all trained"
    assert line.endswith(share)


def test_reward_functions_are_shown_with_weights_and_limits(toy_model, tmp_path, messages):
    rewards = [lambda completions, **_: [0.0] * len(completions), alternating_reward]
    settings = {"reward_weights": [0.5, 1.0], "reward_timeout": 60, "grading_workers": 2}
    train_rapid(toy_model, tmp_path, "rapid", rewards, max_steps=1, **settings)
    expected = (
        "0.5 * <lambda>, alternating_reward; 2 threads for grading; reward_timeout=60 seconds"
    )
    assert f"rewards    {expected}\n" in messages()[0]


# Where it is printed ------------------------------------------------------------------------------


def test_lines_are_printed_before_the_progress_bar_and_after_the_first_batch(
    toy_model, tmp_path, capsys
):
    settings = {"H": 2, "max_steps": 6, "disable_tqdm": False}
    trainer = train_rapid(toy_model, tmp_path, "rapid", **settings)
    callbacks = [type(callback) for callback in trainer.callback_handler.callbacks]
    assert callbacks[0] is Overview
    assert SteadyProgress in callbacks and ProgressCallback not in callbacks
    printed = capsys.readouterr().out
    assert printed.count("RapidTrainer: optimizer steps 1 to 6\n  model ") == 1
    assert re.findall(r"step (\d) of 6: an inference batch took", printed) == ["2"]
    sections = re.search("took .+ \\((sampling .+)\\); peak memory [0-9.]+ [GM]B; time", printed)
    names = [part.split()[0] for part in re.split("[,;] ", sections[1])]
    assert names[:-1] == ["sampling", "grading", "training", "other"]


@pytest.fixture
def restored_verbosity():
    verbosity = transformers_logging.get_verbosity()
    yield
    transformers_logging.set_verbosity(verbosity)


@pytest.mark.parametrize(
    "settings", [{"disable_tqdm": True}, {"disable_tqdm": False, "log_level": "error"}]
)
def test_it_can_be_silenced(toy_model, tmp_path, capsys, restored_verbosity, settings):
    trainer = train_rapid(toy_model, tmp_path, "rapid", H=1, max_steps=1, **settings)
    printed = capsys.readouterr().out
    assert "loss" in printed and "RapidTrainer" not in printed and "inference batch" not in printed
    progress = PrinterCallback if settings["disable_tqdm"] else SteadyProgress
    assert progress in [type(callback) for callback in trainer.callback_handler.callbacks]


def test_only_the_first_process_prints(messages):
    args = SimpleNamespace(disable_tqdm=False)
    trainer = SimpleNamespace(
        clock=SimpleNamespace(seconds={}), passes=0, has_pending_steps=lambda: False,
        optimizer=None, lr_scheduler=None,
    )  # fmt: skip
    state = SimpleNamespace(is_world_process_zero=False, global_step=1, max_steps=2)
    callback = Overview(trainer)
    callback.on_train_begin(args, state, None)
    callback.on_step_end(args, state, None)
    assert not messages()


# Time left ----------------------------------------------------------------------------------------

FIRST, LATER = BatchTime(100, 40), BatchTime(20, 8)


@pytest.mark.parametrize(
    ("batches", "steps", "seconds"),
    [
        ([FIRST], 8, 200),  # two more batches of 100
        ([FIRST], 2, 80),  # sampling takes 60, and half of the steps 20
        ([FIRST, LATER], 8, 40),  # the first batch does not count any more
        ([FIRST, LATER, BatchTime(40, 28)], 6, 51),  # twice 12, and 18 for each four steps
    ],
)
def test_time_left_follows_from_batches_and_steps(batches, steps, seconds):
    assert estimate_seconds_left(batches, steps, steps_per_batch=4) == pytest.approx(seconds)


def test_progress_bar_estimates_from_the_mean_of_this_run(capsys):
    progress = SteadyProgress()
    state = SimpleNamespace(is_world_process_zero=True, global_step=100, max_steps=200)
    progress.on_train_begin(None, state, None)
    progress.training_bar.start_t -= 10
    for state.global_step in range(101, 111):
        progress.on_step_end(None, state, None)
    minutes, seconds = re.search(r"110/200 \[.+<(\d+):(\d+),", str(progress.training_bar)).groups()
    assert 90 <= 60 * int(minutes) + int(seconds) < 100
    progress.on_train_end(None, state, None)
