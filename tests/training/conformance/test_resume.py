"""A run that is stopped after any step and resumed is the run that was not stopped, bit by bit."""

from collections import Counter
from pickle import UnpicklingError

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from rapid import RapidConfig, RapidTrainer
from tests.training.loops import COMMON, digits_sum, sometimes, weights

STEPS = 8
PROMPTS = 9  # an inference batch or two: the last steps are in another epoch
# Of the last row: times, and the mean loss, which transformers divides by the steps of all calls, or
# from 5.19 on of this one.
OF_THIS_CALL = ("runtime", "per_second", "step_time", "train_loss")
# As "rapid", each differs from it by something that a checkpoint has to hold.
LORA = {"peft_config": LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")}
LOOPS = {
    "rapid": {"H": 4},
    "epochs": {"H": 2},
    "adam": {"optim": "adamw_torch", "lr_scheduler_type": "cosine", "H": 4, "logging_steps": 3},
    "dapo": {"objective": "dapo", "H": 4, "dynamic_sampling_rounds": 3},
    "grpo": {"objective": "grpo", "H": 4, "beta": 0.04},
    "ungraded": {"H": 4, "reward_funcs": [sometimes, digits_sum], "grading_workers": 2},
    "plain": {"H": 4, "reuse_logp": False, "share_prefill": False, "pack": False},
    "stream": {"H": 4},
    "lora": {"H": 4, "arguments": LORA},
    "evaluated": {"H": 4, "eval_strategy": "steps", "eval_steps": 2},
}


def build(toy_model, folder, name="rapid", reward_funcs=digits_sum, arguments=None, **settings):
    torch.set_num_threads(1)
    sizes = {"n_step": 4, "micro_batch_size": 2, "num_generations": 2, "max_steps": STEPS}
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


@pytest.mark.parametrize("name", slow_but("rapid", "epochs"))
def test_a_resumed_run_is_the_run_that_was_not_stopped(name, toy_model, tmp_path):
    whole = build(toy_model, tmp_path, name, **LOOPS[name])
    whole.train()
    expected, log, sampled = result(whole)
    for step in (4, 5) if name == "epochs" else (3, 6):
        trainer = build(toy_model, tmp_path / "again", name, **LOOPS[name])
        trainer.train(str(tmp_path / f"checkpoint-{step}"))
        again = result(trainer)
        assert torch.equal(again[0], expected), step
        assert again[1:] == (log, sampled), step
        assert repr(trainer._logs["rewards"].items()) == repr(whole._logs["rewards"].items())
        assert trainer._logs["completion"] == whole._logs["completion"]


def test_a_resumed_run_knows_what_ran_last_and_what_was_said(toy_model, tmp_path):
    """Of the latter some is no JSON, and some is logged in a later step only."""
    verdicts = Counter()

    def runs_out(completions, trainer_state, log_extra, **_):
        log_extra("where", [tmp_path] * len(completions))
        verdicts["graded"] += len(completions)
        return [float(i % 2 and trainer_state.global_step < 4) for i in range(len(completions))]

    whole, resumed = (
        build(toy_model, tmp_path / name, reward_funcs=runs_out, H=4, logging_steps=4)
        for name in ("whole", "again")
    )
    whole.verdicts = resumed.verdicts = verdicts
    whole.train()
    expected = dict(verdicts)
    verdicts["another run's"] = 1
    resumed.train(str(tmp_path / "whole/checkpoint-5"))
    assert dict(verdicts) == expected == {"graded": 2 * 16}
    assert result(resumed)[1:] == result(whole)[1:]
    assert [*resumed._logs["extra"]["where"]] == [str(tmp_path)] * 16
    assert resumed.last_pass[0] == whole.last_pass[0] == 4
    assert torch.equal(resumed.last_pass[2], whole.last_pass[2])


class SavesWithinSteps(TrainerCallback):
    """Saves before the optimizer's step, as transformers does with `enable_jit_checkpoint`."""

    def on_pre_optimizer_step(self, args, state, control, **_):
        self.trainer._save_checkpoint(self.trainer.model, None)


def test_a_run_saved_within_a_step_is_resumed_before_it(toy_model, tmp_path):
    """Also within the first step, in the second epoch, and where a step samples."""
    saves = SavesWithinSteps()
    settings = LOOPS["epochs"] | {"save_strategy": "no"}
    whole = build(toy_model, tmp_path, "epochs", arguments={"callbacks": [saves]}, **settings)
    saves.trainer = whole
    whole.train()
    for step in (0, 1, 4, 7):
        resumed = build(toy_model, tmp_path / "again", "epochs", **settings)
        resumed.train(str(tmp_path / f"checkpoint-{step}"))
        assert torch.equal(weights(resumed), weights(whole)), step
        assert result(resumed)[1:] == result(whole)[1:], step


def test_a_run_goes_on_from_the_newest_checkpoint_that_is_whole(toy_model, tmp_path, capsys):
    settings = LOOPS["rapid"] | {"save_total_limit": 2}
    (tmp_path / "partial/checkpoint-3").mkdir(parents=True)  # of a run that was killed
    whole = build(toy_model, tmp_path, **settings)
    whole.train()
    assert {one.name for one in tmp_path.glob("*-*")} == {"checkpoint-7", "checkpoint-8"}
    (tmp_path / "checkpoint-8/optimizer.pt").write_bytes(b"")
    (tmp_path / "checkpoint-9").mkdir()  # another Trainer's that was killed
    resumed = build(toy_model, tmp_path, **settings)
    resumed.train(resume_from_checkpoint=True)
    said = capsys.readouterr().err
    assert "checkpoint-9 is damaged, and left out: digests.json is missing" in said
    assert "checkpoint-8 is damaged, and left out: optimizer.pt\n" in said
    assert torch.equal(weights(resumed), weights(whole))


def test_a_checkpoint_has_the_best_one_s_name(toy_model, tmp_path):
    """Not that under which it was written."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "reward"}
    trainer = build(toy_model, tmp_path, H=4, max_steps=4, eval_steps=2, eval_strategy="steps",
                    save_steps=2, **best | {"arguments": None})  # fmt: skip
    trainer.train()
    found = trainer.state.best_model_checkpoint
    assert (tmp_path / "checkpoint-4/trainer_state.json").read_text().count(found) == 1
    assert found in {str(tmp_path / "checkpoint-2"), str(tmp_path / "checkpoint-4")}


class EndsAnEpoch(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_epoch_stop = state.global_step == 3


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[pytest.mark.slow] * (step != 3)) for step in (2, 3, 4, 6)]
)
def test_a_run_whose_epoch_ended_early_is_resumed_in_the_next(step, toy_model, tmp_path):
    settings = {"H": 2, "n_step": 2, "num_train_epochs": 2, "max_steps": -1}
    settings["arguments"] = {"callbacks": [EndsAnEpoch()]}
    whole = build(toy_model, tmp_path, **settings)
    whole.train()
    resumed = build(toy_model, tmp_path / "again", **settings)
    resumed.train(str(tmp_path / f"checkpoint-{step}"))
    assert torch.equal(weights(resumed), weights(whole))
    assert result(resumed)[1:] == result(whole)[1:]


def test_what_would_not_be_the_same_run_is_refused(toy_model, tmp_path):
    build(toy_model, tmp_path, H=4, max_steps=3, save_steps=3).train()
    checkpoint = tmp_path / "checkpoint-3"
    with pytest.raises(ValueError, match=r"H was 4, n_step was 4\. Change that, or begin a new"):
        build(toy_model, tmp_path, H=2, n_step=8).train(str(checkpoint))
    with pytest.raises(ValueError, match="sync_ref_model has moved is not saved"):
        settings = {"objective": "grpo", "beta": 0.1, "sync_ref_model": True}
        build(toy_model, tmp_path, H=4, **settings).train(str(checkpoint))
    (checkpoint / "inference_batch_0.pth").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-3 is damaged: inference_batch_0\.pth"):
        build(toy_model, tmp_path, H=4).train(str(checkpoint))
    (checkpoint / "digests.json").unlink()  # as an earlier version saved it
    torch.save({"sizes": checkpoint}, checkpoint / "inference_batch_0.pth")
    with pytest.raises(UnpicklingError, match="Weights only load failed"):  # it could be any code
        build(toy_model, tmp_path, H=4).train(str(checkpoint))
    (checkpoint / "inference_batch_0.pth").unlink()
    with pytest.raises(ValueError, match=r"no inference_batch_0.pth: save_only_model"):
        build(toy_model, tmp_path, H=4).train(str(checkpoint))


def test_a_second_training_begins_with_sampling(toy_model, tmp_path):
    """What the first had left of an inference batch is not learned from."""
    trainer = build(toy_model, tmp_path, H=4, max_steps=3, save_strategy="no")
    trainer.train()
    trainer.train()
    assert trainer.completions_sampled == 2 * 4 * 4
    assert max(row.get("rapid/staleness", 0) for row in trainer.state.log_history[:1]) < 1e-5
