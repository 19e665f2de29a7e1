"""A run that is resumed from a checkpoint is the run that was not stopped, bit by bit."""

from collections import Counter
from pathlib import Path
from pickle import UnpicklingError

import pytest
import torch
from datasets import Dataset, IterableDataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from rapid import RapidConfig, RapidTrainer
from tests.training.loops import COMMON, digits_sum, sometimes, weights

STEPS = 8
PROMPTS = 9  # two inference batches of 4, with H = 2: the last four steps are in another epoch
# Of the last row: times, and the mean loss, which transformers divides by the steps of all calls, or
# from 5.19 on of this one.
OF_THIS_CALL = ("runtime", "per_second", "step_time", "train_loss")
# As "rapid", each differs from it by something that a checkpoint has to hold.
LORA = {"peft_config": LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")}
LOOPS = {
    "rapid": {},
    "adam": {"optim": "adamw_torch", "lr_scheduler_type": "cosine", "logging_steps": 3},
    "dapo": {"objective": "dapo", "dynamic_sampling_rounds": 3},
    "naive_grpo": {"objective": "naive-grpo", "H": 1},
    "grpo": {"objective": "grpo", "beta": 0.04},
    "ungraded": {"reward_funcs": [sometimes, digits_sum], "grading_workers": 2},
    "plain": {"reuse_logp": False, "share_prefill": False, "pack": False},
    "stream": {},
    "lora": {"arguments": LORA},
    "evaluated": {"eval_strategy": "steps", "eval_steps": 3},
}


def build(toy_model, folder, name="rapid", reward_funcs=digits_sum, arguments=None, **settings):
    torch.set_num_threads(1)
    sizes = {"H": 2, "n_step": 4, "micro_batch_size": 2, "num_generations": 2, "max_steps": STEPS}
    others = {"max_completion_length": 6, "learning_rate": 0.05}
    settings = COMMON | sizes | others | {"save_strategy": "steps", "save_steps": 1} | settings
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


def result(trainer) -> tuple[torch.Tensor, list[dict], int]:
    """Weights, logs without what is of one call, and how many completions were sampled."""
    log = [
        {key: repr(value) for key, value in row.items() if not any(t in key for t in OF_THIS_CALL)}
        for row in trainer.state.log_history
    ]
    return weights(trainer), log, trainer.completions_sampled


def slow_but(*quick: str):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in LOOPS]


@pytest.mark.parametrize("name", slow_but("rapid"))
def test_a_resumed_run_is_the_run_that_was_not_stopped(name, toy_model, tmp_path):
    whole = build(toy_model, tmp_path, name, **LOOPS[name])
    whole.train()
    expected, log, sampled = result(whole)
    for step in (4, 6):  # at the end of an epoch, and within one
        trainer = build(toy_model, tmp_path / "resumed", name, **LOOPS[name])
        trainer.train(str(tmp_path / f"checkpoint-{step}"))
        resumed = result(trainer)
        assert torch.equal(resumed[0], expected), step
        assert resumed[1:] == (log, sampled), step
        assert repr(trainer._logs["rewards"].items()) == repr(whole._logs["rewards"].items())
        assert trainer._logs["completion"] == whole._logs["completion"]


class FlowControl(TrainerCallback):
    """Sets fields of `control` at an event of a step."""

    def __init__(self, step: int, *fields: str, event: str = "on_step_end"):
        self.step, self.fields = step, fields
        setattr(self, event, self._set_fields)

    def _set_fields(self, args, state, control, **_):
        if state.global_step == self.step:
            for field in self.fields:
                setattr(control, field, True)


class SavesWithinSteps(TrainerCallback):
    """Saves before the optimizer's step, as transformers does with `enable_jit_checkpoint`."""

    def on_pre_optimizer_step(self, args, state, control, **_):
        if state.global_step == 2:
            control.should_training_stop = True
            Path(args.output_dir, "checkpoint-2").mkdir(exist_ok=True)
            self.trainer._save_checkpoint(self.trainer.model, None)


class SavesAtTheEnd(TrainerCallback):
    def on_train_end(self, args, state, control, **_):
        self.trainer._save_checkpoint(self.trainer.model, None)


def saved_steps(folder) -> list[int]:
    return sorted(
        int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*")
    )


NEVER = {"save_strategy": "no"}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 3}
BEST = {"save_strategy": "best", "eval_strategy": "steps", "metric_for_best_model": "reward"}
ONE_EPOCH = {"num_train_epochs": 1, "max_steps": -1}


def falls(completions, trainer_state, **_):
    """Return rewards that fall with each step."""
    return [1 - trainer_state.global_step / 100 + row % 2 / 1000 for row in range(len(completions))]


WORSE = {"reward_funcs": falls, "metric_for_best_model": "reward", "greater_is_better": True}


@pytest.mark.parametrize(
    ("settings", "callback", "saved", "last"),
    [
        ({"save_steps": 3}, None, [4, 6, 7], 7),
        ({"save_strategy": "epoch"}, None, [4, 7], 7),
        (BEST | {"eval_steps": 3}, None, [4, 6], 7),
        (NEVER, FlowControl(1, "should_save"), [2], 7),
        (NEVER, FlowControl(5, "should_save", "should_training_stop"), [6], 6),
        ({"save_steps": 5}, FlowControl(5, "should_training_stop"), [6], 6),
        (NEVER, FlowControl(5, "should_training_stop"), [], 5),
        (NEVER, SavesWithinSteps(), [4], 4),
        (NEVER, SavesAtTheEnd(), [7], 7),
        (NEVER, FlowControl(1, "should_save", event="on_log"), [2], 7),
        (EVALUATED | NEVER, FlowControl(3, "should_save", event="on_evaluate"), [4], 7),
        ({"save_steps": 5}, FlowControl(5, "should_training_stop", event="on_log"), [6], 6),
        # An evaluation of a worse model takes no save back that is due.
        (BEST | WORSE | {"eval_steps": 2}, FlowControl(3, "should_save"), [2, 4], 7),
        # The best checkpoint is one that is saved.
        (EVALUATED | WORSE | {"save_steps": 3, "save_total_limit": 1}, None, [4], 7),
        # No epoch follows in which the save could be made up for.
        (ONE_EPOCH | {"save_strategy": "epoch"}, FlowControl(3, "should_epoch_stop"), [3], 3),
        (ONE_EPOCH | {"save_steps": 3}, FlowControl(3, "should_epoch_stop"), [3], 3),
    ],
)
def test_a_save_waits_until_the_inference_batch_is_used_up(
    settings, callback, saved, last, toy_model, tmp_path
):
    """Not after the last step; and so does a stop that comes with it."""
    arguments = {"callbacks": [callback] if callback else []}
    trainer = build(toy_model, tmp_path, arguments=arguments, **{"max_steps": 7} | settings)
    if callback:
        callback.trainer = trainer
    trainer.train()
    assert saved_steps(tmp_path) == saved
    assert trainer.state.global_step == last


def test_a_run_that_a_log_has_stopped_is_resumed_within_its_epoch(toy_model, tmp_path):
    settings = {"max_steps": -1, "num_train_epochs": 2, "save_steps": 3}
    whole = build(toy_model, tmp_path / "whole", **settings)
    whole.train()
    stop = FlowControl(3, "should_training_stop", event="on_log")
    build(toy_model, tmp_path, arguments={"callbacks": [stop]}, **settings).train()
    assert saved_steps(tmp_path) == [4]
    resumed = build(toy_model, tmp_path / "resumed", **settings)
    resumed.train(str(tmp_path / "checkpoint-4"))
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.completions_sampled == whole.completions_sampled


def test_a_stream_that_has_run_dry_ends_the_run_though_a_save_is_due(
    toy_model, tmp_path, monkeypatch
):
    prompts = iter([{"prompt": str(number)} for number in range(8)])
    once = IterableDataset.from_generator(lambda: prompts)
    monkeypatch.setattr(Dataset, "to_iterable_dataset", lambda *_: once)
    stop = {"callbacks": [FlowControl(3, "should_epoch_stop")]}
    trainer = build(toy_model, tmp_path, "stream", arguments=stop, max_steps=20)
    trainer.train()
    assert trainer.state.global_step == 3


def test_a_run_that_ended_within_an_inference_batch_samples_anew(toy_model, tmp_path):
    build(toy_model, tmp_path, max_steps=3).train()
    longer = build(toy_model, tmp_path, max_steps=4)
    longer.train(str(tmp_path / "checkpoint-3"))
    assert (longer.state.global_step, longer.completions_sampled) == (4, 3 * 8)


def test_a_resumed_run_knows_what_ran_last_and_what_was_said(toy_model, tmp_path):
    """Of the latter some is no JSON, and some is logged in a later step only."""
    verdicts = Counter()

    def runs_out(completions, trainer_state, log_extra, **_):
        log_extra("where", [tmp_path] * len(completions))
        verdicts["graded"] += len(completions)
        return [float(i % 2 and trainer_state.global_step < 4) for i in range(len(completions))]

    whole, resumed = (
        build(toy_model, tmp_path / name, reward_funcs=runs_out, H=4, logging_steps=3)
        for name in ("whole", "resumed")
    )
    whole.verdicts = resumed.verdicts = verdicts
    whole.train()
    expected = dict(verdicts)
    verdicts["another run's"] = 1
    resumed.train(str(tmp_path / "whole/checkpoint-4"))
    assert dict(verdicts) == expected == {"graded": 2 * 16}
    assert result(resumed)[1:] == result(whole)[1:]
    assert resumed.last_pass[0] == whole.last_pass[0] == 4
    assert torch.equal(resumed.last_pass[2], whole.last_pass[2])


def test_a_run_is_resumed_from_the_newest_whole_checkpoint(toy_model, tmp_path, capsys):
    settings = LOOPS["rapid"] | {"save_total_limit": 2}
    (tmp_path / "partial/checkpoint-3").mkdir(parents=True)  # of a run that was killed
    whole = build(toy_model, tmp_path, **settings)
    whole.train()
    assert {one.name for one in tmp_path.glob("*-*")} == {"checkpoint-6", "checkpoint-8"}
    (tmp_path / "checkpoint-8/optimizer.pt").write_bytes(b"")
    (tmp_path / "checkpoint-9").mkdir()  # another Trainer's that was killed
    resumed = build(toy_model, tmp_path, **settings)
    resumed.train(resume_from_checkpoint=True)
    printed = capsys.readouterr().err
    assert "checkpoint-9 is damaged, and skipped: digests.json is missing" in printed
    assert "checkpoint-8 is damaged, and skipped: optimizer.pt\n" in printed
    assert torch.equal(weights(resumed), weights(whole))


def test_a_checkpoint_has_the_best_one_s_name(toy_model, tmp_path):
    """Not that under which it was written; and the best is of those that there are."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "reward"}
    evaluated = {"eval_steps": 1, "eval_strategy": "steps"}
    trainer = build(toy_model, tmp_path, max_steps=4, **evaluated, **best)
    trainer.train()
    best_checkpoint = trainer.state.best_model_checkpoint
    state = (tmp_path / "checkpoint-4/trainer_state.json").read_text()
    assert state.count(best_checkpoint) == 1
    assert best_checkpoint in {str(tmp_path / "checkpoint-2"), str(tmp_path / "checkpoint-4")}


class EndsAnEpoch(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_epoch_stop = state.global_step == 3


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.slow] * (step != 4)) for step in (2, 4, 6)]
)
def test_a_run_whose_epoch_ended_early_is_resumed_in_the_next(step, toy_model, tmp_path):
    settings = {"n_step": 2, "num_train_epochs": 2, "max_steps": -1}
    settings["arguments"] = {"callbacks": [EndsAnEpoch()]}
    whole = build(toy_model, tmp_path, **settings)
    whole.train()
    resumed = build(toy_model, tmp_path / "resumed", **settings)
    resumed.train(str(tmp_path / f"checkpoint-{step}"))
    assert torch.equal(weights(resumed), weights(whole))
    assert result(resumed)[1:] == result(whole)[1:]


def test_what_would_not_be_the_same_run_is_refused(toy_model, tmp_path):
    build(toy_model, tmp_path, max_steps=2).train()
    checkpoint = tmp_path / "checkpoint-2"

    def check_refused(match: str, error=ValueError, **settings) -> None:
        with pytest.raises(error, match=match):
            build(toy_model, tmp_path, **settings).train(str(checkpoint))

    check_refused(r"H was 2, n_step was 4\. Change that, or start a new", H=1, n_step=8)
    moved = {"objective": "grpo", "beta": 0.1, "sync_ref_model": True}
    check_refused("which sync_ref_model changes", **moved)
    (checkpoint / "training_loop_0.pth").unlink()
    check_refused(r"checkpoint-2 is damaged: training_loop_0\.pth")
    (checkpoint / "digests.json").unlink()
    torch.save({"sizes": checkpoint}, checkpoint / "training_loop_0.pth")
    check_refused("Weights only load failed", UnpicklingError)  # it could be any code
    (checkpoint / "training_loop_0.pth").unlink()
    (checkpoint / "inference_batch_0.pth").touch()  # an earlier version's
    check_refused(
        "no training_loop_0.pth: it was saved with save_only_model, .* or an earlier version. Change that"
    )


def test_a_second_training_begins_with_sampling(toy_model, tmp_path):
    """What the first had left of an inference batch is not learned from."""
    trainer = build(toy_model, tmp_path, H=4, max_steps=3, save_strategy="no")
    trainer.train()
    trainer.train()
    assert trainer.completions_sampled == 2 * 4 * 4
    assert max(row.get("rapid/staleness", 0) for row in trainer.state.log_history[:1]) < 1e-5
