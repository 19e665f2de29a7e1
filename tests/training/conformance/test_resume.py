"""A run that is resumed from a checkpoint equals an uninterrupted run, bit by bit."""

from collections import Counter
from pathlib import Path
from pickle import UnpicklingError
from statistics import fmean

import pytest
import torch
from datasets import Dataset, IterableDataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from rapid import RapidConfig, RapidTrainer
from tests.training.loops import COMMON, get_weights, partial_reward, text_sum_reward

STEPS = 8
PROMPTS = 9  # with H = 2, two inference batches of 4 an epoch: the last four steps are in another
# Parts of names of logs that differ between calls: times, and the mean loss, which transformers
# divides by the steps of all calls, or from 5.19 on of this call.
CALL_SPECIFIC = ("runtime", "per_second", "step_time", "train_loss")
# Each set of settings differs from "rapid" by a state that a checkpoint has to hold.
LORA = {"peft_config": LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")}
LOOPS = {
    "rapid": {},
    "adam": {"optim": "adamw_torch", "lr_scheduler_type": "cosine", "logging_steps": 3},
    "dapo": {"objective": "dapo", "dynamic_sampling_rounds": 3},
    "naive_grpo": {"objective": "naive-grpo", "H": 1},
    "grpo": {"objective": "grpo", "beta": 0.04},
    "ungraded": {"reward_funcs": [partial_reward, text_sum_reward], "grading_workers": 2},
    "plain": {"reuse_logp": False, "share_prefill": False, "pack": False},
    "stream": {},
    "lora": {"arguments": LORA},
    "evaluated": {"eval_strategy": "steps", "eval_steps": 3},
}


def build_trainer(
    toy_model, folder, name="rapid", reward_funcs=text_sum_reward, arguments=None, **settings
):
    torch.set_num_threads(1)
    sizes = {"H": 2, "n_step": 4, "micro_batch_size": 2, "num_generations": 2, "max_steps": STEPS}
    loop_settings = {"max_completion_length": 6, "learning_rate": 0.05}
    settings = (
        COMMON | sizes | loop_settings | {"save_strategy": "steps", "save_steps": 1} | settings
    )
    prompts = Dataset.from_list([{"prompt": f"{'long ' * (i % 3)}{i}"} for i in range(PROMPTS)])
    return RapidTrainer(
        AutoModelForCausalLM.from_pretrained(toy_model),
        reward_funcs,
        RapidConfig(str(folder), per_device_eval_batch_size=4, **settings),
        prompts.to_iterable_dataset(2) if name == "stream" else prompts,
        prompts.select(range(2)),
        AutoTokenizer.from_pretrained(toy_model, padding_side="left"),
        **(arguments or {}),
    )


def get_result(trainer) -> tuple[torch.Tensor, list[dict], int]:
    """Return weights, logs without call-specific values, and the number of completions."""
    log = [
        {
            key: repr(value)
            for key, value in row.items()
            if not any(part in key for part in CALL_SPECIFIC)
        }
        for row in trainer.state.log_history
    ]
    return get_weights(trainer), log, trainer.completions_sampled


def mark_slow_except(*quick: str):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in LOOPS]


@pytest.mark.parametrize("name", ["rapid", "stream"])
@pytest.mark.parametrize("steps", [2, 4])
def test_finished_run_is_not_trained_further(name, steps, toy_model, tmp_path, caplog):
    """It has taken 4 steps: all of its `max_steps`, or more than now are asked for."""
    finished = build_trainer(toy_model, tmp_path, name, max_steps=4)
    finished.train()
    weights, log, sampled = get_result(finished)
    for _ in range(2):
        resumed = build_trainer(toy_model, tmp_path, name, max_steps=steps)
        resumed.train(resume_from_checkpoint=True)
        assert resumed.state.global_step == 4
        assert torch.equal(get_weights(resumed), weights)
        assert resumed.completions_sampled == sampled
        assert get_result(resumed)[1][: len(log) - 1] == log[:-1]  # the last row ends the call
    assert f"the run has taken 4 of {steps} steps" in caplog.text
    assert [path.name for path in tmp_path.glob("checkpoint-*")].count("checkpoint-5") == 0


@pytest.mark.parametrize("name", mark_slow_except("rapid"))
def test_resumed_run_equals_uninterrupted_run(name, toy_model, tmp_path):
    uninterrupted = build_trainer(toy_model, tmp_path, name, **LOOPS[name])
    uninterrupted.train()
    expected, log, sampled = get_result(uninterrupted)
    for step in (4, 6):  # at the end of an epoch, and within one
        trainer = build_trainer(toy_model, tmp_path / "resumed", name, **LOOPS[name])
        trainer.train(str(tmp_path / f"checkpoint-{step}"))
        resumed = get_result(trainer)
        assert torch.equal(resumed[0], expected), step
        assert resumed[1:] == (log, sampled), step
        assert repr(trainer._logs["rewards"].items()) == repr(
            uninterrupted._logs["rewards"].items()
        )
        assert trainer._logs["completion"] == uninterrupted._logs["completion"]


def test_mean_loss_of_a_resumed_run_is_that_of_its_own_steps(toy_model, tmp_path):
    """At the checkpoint, the loss of step 4 is not logged yet. It is not part of the mean."""
    complete = build_trainer(toy_model, tmp_path / "complete", logging_steps=1)
    complete.train()
    losses = [row["loss"] for row in complete.state.log_history if "loss" in row]
    build_trainer(toy_model, tmp_path / "resumed", logging_steps=3).train()
    resumed = build_trainer(toy_model, tmp_path / "resumed", logging_steps=3)
    mean_loss = resumed.train(str(tmp_path / "resumed/checkpoint-4")).training_loss
    # Before 5.19, transformers divides by the steps of all calls.
    averaged = losses[4:] if hasattr(resumed, "_initial_global_step") else losses
    assert mean_loss == pytest.approx(fmean(averaged), abs=1e-4)
    assert abs(fmean(losses[4:]) - sum(losses) / 4) > 1e-3


class SetControl(TrainerCallback):
    """Sets fields of `control` at an event after `step` steps."""

    def __init__(self, step: int, *fields: str, event: str = "on_step_end"):
        self.step, self.fields = step, fields
        setattr(self, event, self._set_fields)

    def _set_fields(self, args, state, control, **_):
        if state.global_step == self.step:
            for field in self.fields:
                setattr(control, field, True)


class SaveWithinStep(TrainerCallback):
    """Saves before the optimizer's step, as transformers' `enable_jit_checkpoint` does."""

    def on_pre_optimizer_step(self, args, state, control, **_):
        if state.global_step == 2:
            control.should_training_stop = True
            Path(args.output_dir, "checkpoint-2").mkdir(exist_ok=True)
            self.trainer._save_checkpoint(self.trainer.model, None)


class SaveAtTrainEnd(TrainerCallback):
    def on_train_end(self, args, state, control, **_):
        self.trainer._save_checkpoint(self.trainer.model, None)


def list_saved_steps(folder) -> list[int]:
    return sorted(
        int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*")
    )


NEVER = {"save_strategy": "no"}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 3}
BEST = {"save_strategy": "best", "eval_strategy": "steps", "metric_for_best_model": "reward"}
ONE_EPOCH = {"num_train_epochs": 1, "max_steps": -1}


def falling_reward(completions, trainer_state, **_):
    """Return rewards that fall with each step."""
    return [1 - trainer_state.global_step / 100 + row % 2 / 1000 for row in range(len(completions))]


FALLING = {
    "reward_funcs": falling_reward,
    "metric_for_best_model": "reward",
    "greater_is_better": True,
}


@pytest.mark.parametrize(
    ("settings", "callback", "saved", "last_step"),
    [
        ({"save_steps": 3}, None, [4, 6, 7], 7),
        ({"save_strategy": "epoch"}, None, [4, 7], 7),
        (BEST | {"eval_steps": 3}, None, [4, 6], 7),
        (NEVER, SetControl(1, "should_save"), [2], 7),
        (NEVER, SetControl(5, "should_save", "should_training_stop"), [6], 6),
        ({"save_steps": 5}, SetControl(5, "should_training_stop"), [6], 6),
        (NEVER, SetControl(5, "should_training_stop"), [], 5),
        (NEVER, SaveWithinStep(), [4], 4),
        (NEVER, SaveAtTrainEnd(), [7], 7),
        (NEVER, SetControl(1, "should_save", event="on_log"), [2], 7),
        (EVALUATED | NEVER, SetControl(3, "should_save", event="on_evaluate"), [4], 7),
        ({"save_steps": 5}, SetControl(5, "should_training_stop", event="on_log"), [6], 6),
        # An evaluation of a worse model does not cancel a save that is due.
        (BEST | FALLING | {"eval_steps": 2}, SetControl(3, "should_save"), [2, 4], 7),
        # The best checkpoint is one that was saved.
        (EVALUATED | FALLING | {"save_steps": 3, "save_total_limit": 1}, None, [4], 7),
        # No epoch follows in which the save could happen later.
        (ONE_EPOCH | {"save_strategy": "epoch"}, SetControl(3, "should_epoch_stop"), [3], 3),
        (ONE_EPOCH | {"save_steps": 3}, SetControl(3, "should_epoch_stop"), [3], 3),
    ],
)
def test_save_waits_for_end_of_inference_batch(
    settings, callback, saved, last_step, toy_model, tmp_path
):
    """A stop that is set with it waits too; after the last step nothing waits."""
    arguments = {"callbacks": [callback] if callback else []}
    trainer = build_trainer(toy_model, tmp_path, arguments=arguments, **{"max_steps": 7} | settings)
    if callback:
        callback.trainer = trainer
    trainer.train()
    assert list_saved_steps(tmp_path) == saved
    assert trainer.state.global_step == last_step


def test_run_stopped_on_log_resumes_within_its_epoch(toy_model, tmp_path):
    settings = {"max_steps": -1, "num_train_epochs": 2, "save_steps": 3}
    uninterrupted = build_trainer(toy_model, tmp_path / "uninterrupted", **settings)
    uninterrupted.train()
    stop = SetControl(3, "should_training_stop", event="on_log")
    build_trainer(toy_model, tmp_path, arguments={"callbacks": [stop]}, **settings).train()
    assert list_saved_steps(tmp_path) == [4]
    resumed = build_trainer(toy_model, tmp_path / "resumed", **settings)
    resumed.train(str(tmp_path / "checkpoint-4"))
    assert torch.equal(get_weights(resumed), get_weights(uninterrupted))
    assert resumed.completions_sampled == uninterrupted.completions_sampled


def test_exhausted_stream_ends_run_with_pending_save(toy_model, tmp_path, monkeypatch):
    prompts = iter([{"prompt": str(number)} for number in range(8)])
    single_pass = IterableDataset.from_generator(lambda: prompts)
    monkeypatch.setattr(Dataset, "to_iterable_dataset", lambda *_: single_pass)
    stop = {"callbacks": [SetControl(3, "should_epoch_stop")]}
    trainer = build_trainer(toy_model, tmp_path, "stream", arguments=stop, max_steps=20)
    trainer.train()
    assert trainer.state.global_step == 3


def test_run_that_ended_within_inference_batch_samples_again(toy_model, tmp_path):
    build_trainer(toy_model, tmp_path, max_steps=3).train()
    longer = build_trainer(toy_model, tmp_path, max_steps=4)
    longer.train(str(tmp_path / "checkpoint-3"))
    assert (longer.state.global_step, longer.completions_sampled) == (4, 3 * 8)


def test_resume_restores_last_micro_batch_verdicts_and_logs(toy_model, tmp_path):
    """Some extras are not JSON, and some metrics are logged in a later step only."""
    verdicts = Counter()

    def fading_reward(completions, trainer_state, log_extra, **_):
        log_extra("where", [tmp_path] * len(completions))
        verdicts["graded"] += len(completions)
        return [float(i % 2 and trainer_state.global_step < 4) for i in range(len(completions))]

    uninterrupted, resumed = (
        build_trainer(toy_model, tmp_path / name, reward_funcs=fading_reward, H=4, logging_steps=3)
        for name in ("uninterrupted", "resumed")
    )
    uninterrupted.verdicts = resumed.verdicts = verdicts
    uninterrupted.train()
    expected = dict(verdicts)
    verdicts["another run's"] = 1
    resumed.train(str(tmp_path / "uninterrupted/checkpoint-4"))
    assert dict(verdicts) == expected == {"graded": 2 * 16}
    assert get_result(resumed)[1:] == get_result(uninterrupted)[1:]
    assert resumed.last_pass[0] == uninterrupted.last_pass[0] == 4
    assert torch.equal(resumed.last_pass[2], uninterrupted.last_pass[2])


def test_resume_uses_newest_undamaged_checkpoint(toy_model, tmp_path, capsys):
    settings = LOOPS["rapid"] | {"save_total_limit": 2}
    (tmp_path / "partial/checkpoint-3").mkdir(parents=True)  # left by a run that was killed
    uninterrupted = build_trainer(toy_model, tmp_path, **settings)
    uninterrupted.train()
    assert {path.name for path in tmp_path.glob("*-*")} == {"checkpoint-6", "checkpoint-8"}
    (tmp_path / "checkpoint-8/optimizer.pt").write_bytes(b"")
    (tmp_path / "checkpoint-9").mkdir()  # left by a plain Trainer that was killed
    resumed = build_trainer(toy_model, tmp_path, **settings)
    resumed.train(resume_from_checkpoint=True)
    printed = capsys.readouterr().err
    assert "checkpoint-9 is skipped, because it is damaged: digests.json is missing" in printed
    assert "checkpoint-8 is skipped, because it is damaged: optimizer.pt\n" in printed
    assert torch.equal(get_weights(resumed), get_weights(uninterrupted))


def test_checkpoint_names_an_existing_best_checkpoint(toy_model, tmp_path):
    """The state names the final folder, not the temporary one, and one that exists."""
    best_settings = {"load_best_model_at_end": True, "metric_for_best_model": "reward"}
    eval_settings = {"eval_steps": 1, "eval_strategy": "steps"}
    trainer = build_trainer(toy_model, tmp_path, max_steps=4, **eval_settings, **best_settings)
    trainer.train()
    best_checkpoint = trainer.state.best_model_checkpoint
    state = (tmp_path / "checkpoint-4/trainer_state.json").read_text()
    assert state.count(best_checkpoint) == 1
    assert best_checkpoint in {str(tmp_path / "checkpoint-2"), str(tmp_path / "checkpoint-4")}


class EndEpochEarly(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_epoch_stop = state.global_step == 3


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.slow] * (step != 4)) for step in (2, 4, 6)]
)
def test_run_whose_epoch_ended_early_resumes_in_next_epoch(step, toy_model, tmp_path):
    settings = {"n_step": 2, "num_train_epochs": 2, "max_steps": -1}
    settings["arguments"] = {"callbacks": [EndEpochEarly()]}
    uninterrupted = build_trainer(toy_model, tmp_path, **settings)
    uninterrupted.train()
    resumed = build_trainer(toy_model, tmp_path / "resumed", **settings)
    resumed.train(str(tmp_path / f"checkpoint-{step}"))
    assert torch.equal(get_weights(resumed), get_weights(uninterrupted))
    assert get_result(resumed)[1:] == get_result(uninterrupted)[1:]


def test_resume_that_would_change_run_is_refused(toy_model, tmp_path):
    build_trainer(toy_model, tmp_path, max_steps=2).train()
    checkpoint = tmp_path / "checkpoint-2"

    def check_refused(match: str, error=ValueError, **settings) -> None:
        with pytest.raises(error, match=match):
            build_trainer(toy_model, tmp_path, **settings).train(str(checkpoint))

    sizes = (
        r"H was 2 and is now 1, n_step was 4 and is now 8\. Restore these settings, or start a new"
    )
    check_refused(sizes, H=1, n_step=8)
    check_refused(r"bf16 was False and is now True\. Restore these settings", bf16=True)
    moving_reference = {"objective": "grpo", "beta": 0.1, "sync_ref_model": True}
    check_refused("which sync_ref_model changes", **moving_reference)
    (checkpoint / "training_loop_0.pth").unlink()
    check_refused(r"checkpoint-2 is damaged: training_loop_0\.pth")
    (checkpoint / "digests.json").unlink()
    torch.save({"sizes": checkpoint}, checkpoint / "training_loop_0.pth")
    check_refused("Weights only load failed", UnpicklingError)  # unpickling could run any code
    (checkpoint / "training_loop_0.pth").unlink()
    (checkpoint / "inference_batch_0.pth").touch()  # written by an earlier version
    check_refused(
        "no training_loop_0.pth: it was saved with save_only_model, .* or by an earlier version. Start"
    )


def test_second_training_samples_new_batch(toy_model, tmp_path):
    """The rest of the first training's inference batch is dropped."""
    trainer = build_trainer(toy_model, tmp_path, H=4, max_steps=3, save_strategy="no")
    trainer.train()
    trainer.train()
    assert trainer.completions_sampled == 2 * 4 * 4
    assert max(row.get("rapid/staleness", 0) for row in trainer.state.log_history[:1]) < 1e-5


@pytest.mark.parametrize("uses_vllm", [False, True])
def test_verdict_on_another_sampler_is_not_restored(toy_model, tmp_path, uses_vllm):
    """The checkpoint is of a run that sampled with transformers."""
    trainer, resumed = (build_trainer(toy_model, tmp_path) for _ in range(2))
    trainer._sampler_check.is_exact = True
    resumed.use_vllm = uses_vllm
    resumed.load_loop_state(trainer.get_loop_state())
    assert resumed._sampler_check.is_exact is (None if uses_vllm else True)
