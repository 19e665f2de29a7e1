"""Prompts, rewards, datasets, evaluation and callbacks work as with GRPOTrainer."""

from math import isfinite

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    EarlyStoppingCallback,
    LlamaConfig,
    LlamaForSequenceClassification,
    TrainerCallback,
)
from trl import GRPOTrainer

from rapid import RapidTrainer
from tests.training.conformance.families import SHAPE, build_without_dropout
from tests.training.loops import ScriptedGrpoTrainer, ScriptedTrainer, get_weights, logged_values

CHAT = "{% for m in messages %}{{ m['role'][0] + ':' + m['content'] + ';' }}{% endfor %}"
CHAT += "{% if add_generation_prompt %}a:{% endif %}"
TEXT_ROWS = [{"prompt": f"prompt {i}", "answer": i % 3} for i in range(8)]
FIRST_MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
CHAT_ROWS = [
    row | {"prompt": [*FIRST_MESSAGES, {"role": "user", "content": row["prompt"]}]}
    for row in TEXT_ROWS
]
TRL_SETTINGS = {"loss_type": "grpo", "per_device_train_batch_size": 16, "learning_rate": 1.0}
RAPID_SETTINGS = {
    "objective": "grpo",
    "H": 1,
    "n_step": 16,
    "micro_batch_size": 8,
    "learning_rate": 1.0,
}


# Rewards ------------------------------------------------------------------------------------------


def get_text(completion) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def answer_reward(prompts, completions, answer, trainer_state, **_):
    """Reward from a column of the dataset; it also gets the state of the run."""
    assert trainer_state.global_step == 0
    pairs = zip(completions, answer, strict=True)
    return [float(sum(map(ord, get_text(text))) % 3 == expected) for text, expected in pairs]


async def length_reward(completions, **_):
    return [len(get_text(text)) / 8 for text in completions]


class PartialReward:
    """Reward function that is an object; it returns None for completions of odd length."""

    __name__ = "partial"

    def __call__(self, completion_ids, log_metric, log_extra, **_):
        log_metric("longest", max(map(len, completion_ids)))
        log_extra("tokens", [len(ids) for ids in completion_ids])
        return [None if len(ids) % 2 else ids[0] / 258 for ids in completion_ids]


def build_reward_model():
    torch.manual_seed(3)
    model = LlamaForSequenceClassification(LlamaConfig(vocab_size=258, num_labels=1, **SHAPE))
    return model.eval()


def build_rewards(name: str, tokenizer) -> tuple[list, dict]:
    """Return reward functions, and further arguments of the trainer."""
    if name == "model":
        return [answer_reward, build_reward_model()], {
            "reward_processing_classes": [None, tokenizer]
        }
    return {
        "column": [answer_reward],
        "async": [length_reward, answer_reward],
        "partial": [PartialReward(), answer_reward],
        "weighted": [answer_reward, length_reward, PartialReward()],
    }[name], {}


def list_reward_cases():
    for name in ("column", "async", "partial", "weighted", "model"):
        for chat in (False, True):
            for workers in (0, 2) if name == "column" else (0,):  # test_rewards.py has the others
                quick = (name, chat) in {("column", True), ("weighted", False), ("model", True)}
                slow = [] if quick else [pytest.mark.slow]
                yield pytest.param(name, chat, workers, marks=slow)


@pytest.mark.parametrize(("name", "chat", "workers"), list_reward_cases())
def test_gradient_matches_trl_for_every_kind_of_prompt_and_reward(
    name, chat, workers, toy_model, train
):
    trainers = []
    for trainer_class, settings in (
        (ScriptedGrpoTrainer, TRL_SETTINGS),
        (ScriptedTrainer, RAPID_SETTINGS),
    ):
        tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
        tokenizer.chat_template = CHAT
        functions, reward_arguments = build_rewards(name, tokenizer)
        rows = Dataset.from_list(CHAT_ROWS if chat else TEXT_ROWS)
        arguments = {"train_dataset": rows, "processing_class": tokenizer} | reward_arguments
        if name == "weighted":
            settings = settings | {"reward_weights": [0.5, -1.0, 2.0]}
        if trainer_class is ScriptedTrainer:
            settings = settings | {"grading_workers": workers}
        trainers.append(
            train(trainer_class, build_without_dropout("Llama"), functions, arguments, **settings)
        )
    start = torch.cat([p.detach().flatten() for p in build_without_dropout("Llama").parameters()])
    trl_step, rapid_step = (get_weights(trainer) - start for trainer in trainers)
    assert trl_step.abs().max() > 1e-4
    tolerance = 1e-4 * float(trl_step.abs().max())
    torch.testing.assert_close(rapid_step, trl_step, rtol=1e-3, atol=tolerance)
    for key in trainers[0].state.log_history[0]:
        if key.startswith(("reward", "longest", "completions/", "num_tokens")):
            values, expected = logged_values(trainers[1], key), logged_values(trainers[0], key)
            assert values == pytest.approx(expected, nan_ok=True), key
    trl_logs, rapid_logs = (trainer._logs for trainer in trainers)
    for column in ("prompt", "completion", "extra"):
        assert rapid_logs[column] == trl_logs[column]


# Loops --------------------------------------------------------------------------------------------

LOOP = {"learning_rate": 0.05, "max_completion_length": 4, "num_generations": 2, "max_steps": 6}
LOOP |= {"per_device_train_batch_size": 4, "steps_per_generation": 2}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}
SAVED = {"save_strategy": "steps", "save_steps": 2, "logging_steps": 2}
STREAM = Dataset.from_list(TEXT_ROWS).to_iterable_dataset()


class EventRecorder(TrainerCallback):
    """Records events with their steps, and sets fields of `control` after `step` steps."""

    def __init__(self, step: int = 0, **control_fields: bool):
        self.step, self.control_fields, self.events = step, control_fields, []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def record_event(args, state, control, **_):
            self.events.append((name, state.global_step))
            if (name, state.global_step) == ("on_step_end", self.step):
                vars(control).update(self.control_fields)

        return record_event


def train_loop(train, trainer_class, callback, settings, **arguments):
    all_arguments = {
        "eval_dataset": Dataset.from_list(TEXT_ROWS[:2]),
        "callbacks": [callback],
        **arguments,
    }
    return train(trainer_class, build_without_dropout("Llama"), arguments=all_arguments, **settings)


@pytest.mark.parametrize(
    ("recorder_arguments", "settings"),
    [
        ({}, EVALUATED | SAVED),
        ({"step": 3, "should_training_stop": True}, EVALUATED),
        ({"step": 3, "should_epoch_stop": True}, SAVED),
        ({"step": 4, "should_save": True, "should_evaluate": True, "should_log": True}, {}),
    ],
)
def test_callbacks_and_control_flow_match_trl(recorder_arguments, settings, train, tmp_path):
    outcomes = []
    for trainer_class in (GRPOTrainer, RapidTrainer):
        callback, folder = EventRecorder(**recorder_arguments), tmp_path / trainer_class.__name__
        folder_settings = {"logging_steps": 6, "per_device_eval_batch_size": 4, "folder": folder}
        train_loop(train, trainer_class, callback, LOOP | folder_settings | settings)
        checkpoints = sorted(path.name for path in folder.glob("checkpoint-*"))
        outcomes.append((callback.events, checkpoints))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0][-1][0] == "on_train_end"


def test_evaluation_does_not_change_training(train):
    """Scripted completions draw no random numbers, so that both runs train on the same ones."""
    without_evaluation, with_evaluation = (
        train_loop(train, ScriptedTrainer, EventRecorder(), LOOP | settings)
        for settings in ({}, EVALUATED)
    )
    assert torch.equal(get_weights(without_evaluation), get_weights(with_evaluation))
    assert len(logged_values(with_evaluation, "eval_reward")) == 3


def test_datasets_and_streams_are_evaluated_and_predicted(train):
    rows = Dataset.from_list(TEXT_ROWS)
    eval_datasets = {"dataset": rows.select(range(2)), "stream": STREAM}
    settings = LOOP | EVALUATED | {"max_steps": 2, "num_generations_eval": 4}
    trainer = train_loop(train, RapidTrainer, EventRecorder(), settings, eval_dataset=eval_datasets)
    assert logged_values(trainer, "eval_dataset_loss") and logged_values(
        trainer, "eval_stream_loss"
    )
    assert len(logged_values(trainer, "eval_reward")) == 2
    assert 0 <= trainer.evaluate(rows.select(range(3)))["eval_reward"] <= 1
    assert isfinite(trainer.predict(rows.select(range(4))).metrics["test_loss"])


def test_prediction_samples_groups_like_evaluation(train):
    """TRL's predict samples one completion per prompt, and compares those of different prompts."""
    trainer = train_loop(train, ScriptedTrainer, EventRecorder(), LOOP)
    rows = Dataset.from_list(TEXT_ROWS).select(range(3))
    test_loss = trainer.predict(rows).metrics["test_loss"]
    assert test_loss == trainer.evaluate(rows)["eval_loss"]


@pytest.mark.parametrize("steps", [2, 6])
def test_stream_trains_like_dataset(steps, train):
    """Without shuffling, whose order differs for streams."""
    settings = LOOP | {"shuffle_dataset": False, "max_steps": steps}
    trainers = [
        train_loop(train, ScriptedTrainer, EventRecorder(), settings, train_dataset=rows)
        for rows in (Dataset.from_list(TEXT_ROWS), STREAM)
    ]
    assert torch.equal(*map(get_weights, trainers))


def test_early_stopping_keeps_best_model(train):
    settings = EVALUATED | {"save_strategy": "steps", "save_steps": 2, "max_steps": 8}
    best = {"metric_for_best_model": "eval_reward", "load_best_model_at_end": True}
    best |= {"greater_is_better": False, "learning_rate": 0.0}  # no later evaluation is lower
    trainer = train_loop(train, ScriptedTrainer, EarlyStoppingCallback(2), LOOP | settings | best)
    assert trainer.state.best_model_checkpoint
    assert trainer.state.global_step == 6
