"""Prompts, rewards, datasets, evaluation and callbacks do what they do with GRPOTrainer."""

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
from tests.training.conformance.families import SHAPE
from tests.training.conformance.test_families import quiet
from tests.training.loops import ScriptedGrpo, ScriptedTrainer, logged, weights

CHAT = "{% for m in messages %}{{ m['role'][0] + ':' + m['content'] + ';' }}{% endfor %}"
CHAT += "{% if add_generation_prompt %}a:{% endif %}"
PLAIN = [{"prompt": f"prompt {i}", "answer": i % 3} for i in range(8)]
TURNS = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
CHATS = [row | {"prompt": [*TURNS, {"role": "user", "content": row["prompt"]}]} for row in PLAIN]
THEIRS = {"loss_type": "grpo", "per_device_train_batch_size": 16, "learning_rate": 1.0}
OURS = {"objective": "grpo", "H": 1, "n_step": 16, "micro_batch_size": 8, "learning_rate": 1.0}


# Rewards ------------------------------------------------------------------------------------------


def text_of(completion) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def by_answer(prompts, completions, answer, trainer_state, **_):
    """A reward from a column of the dataset and the state of the run."""
    assert trainer_state.global_step == 0
    pairs = zip(completions, answer, strict=True)
    return [float(sum(map(ord, text_of(text))) % 3 == wanted) for text, wanted in pairs]


async def waited(completions, **_):
    return [len(text_of(text)) / 8 for text in completions]


class Some:
    """A reward that is an object, and knows every second completion only."""

    __name__ = "some"

    def __call__(self, completion_ids, log_metric, log_extra, **_):
        log_metric("longest", max(map(len, completion_ids)))
        log_extra("tokens", [len(ids) for ids in completion_ids])
        return [None if len(ids) % 2 else ids[0] / 258 for ids in completion_ids]


def reward_model():
    torch.manual_seed(3)
    model = LlamaForSequenceClassification(LlamaConfig(vocab_size=258, num_labels=1, **SHAPE))
    return model.eval()


def rewards(name: str, tokenizer) -> tuple[list, dict]:
    """Reward functions, and further arguments."""
    if name == "model":
        return [by_answer, reward_model()], {"reward_processing_classes": [None, tokenizer]}
    return {
        "column": [by_answer],
        "async": [waited, by_answer],
        "some": [Some(), by_answer],
        "weighted": [by_answer, waited, Some()],
    }[name], {}


def cases():
    for name in ("column", "async", "some", "weighted", "model"):
        for chat in (False, True):
            for workers in (0, 2) if name == "column" else (0,):  # others: test_rewards.py
                quick = (name, chat) in {("column", True), ("weighted", False), ("model", True)}
                slow = [] if quick else [pytest.mark.slow]
                yield pytest.param(name, chat, workers, marks=slow)


@pytest.mark.parametrize(("name", "chat", "workers"), cases())
def test_prompts_and_rewards_of_every_kind_have_trls_gradient(
    name, chat, workers, toy_model, train
):
    runs = []
    for kind, sizes in ((ScriptedGrpo, THEIRS), (ScriptedTrainer, OURS)):
        tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
        tokenizer.chat_template = CHAT
        functions, others = rewards(name, tokenizer)
        rows = Dataset.from_list(CHATS if chat else PLAIN)
        given = {"train_dataset": rows, "processing_class": tokenizer} | others
        if name == "weighted":
            sizes = sizes | {"reward_weights": [0.5, -1.0, 2.0]}
        if kind is ScriptedTrainer:
            sizes = sizes | {"grading_workers": workers}
        runs.append(train(kind, quiet("Llama"), functions, given, **sizes))
    start = torch.cat([p.detach().flatten() for p in quiet("Llama").parameters()])
    theirs, ours = (weights(run) - start for run in runs)
    assert theirs.abs().max() > 1e-4
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))
    for key in runs[0].state.log_history[0]:
        if key.startswith(("reward", "longest", "completions/", "num_tokens")):
            found, expected = logged(runs[1], key), logged(runs[0], key)
            assert found == pytest.approx(expected, nan_ok=True), key
    theirs, ours = (run._logs for run in runs)
    for column in ("prompt", "completion", "extra"):
        assert ours[column] == theirs[column]


# Loops --------------------------------------------------------------------------------------------

LOOP = {"learning_rate": 0.05, "max_completion_length": 4, "num_generations": 2, "max_steps": 6}
LOOP |= {"per_device_train_batch_size": 4, "steps_per_generation": 2}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}
SAVED = {"save_strategy": "steps", "save_steps": 2, "logging_steps": 2}
STREAM = Dataset.from_list(PLAIN).to_iterable_dataset()


class Notes(TrainerCallback):
    """Notes what is called after how many steps; after `step` of them asks for what it is told."""

    def __init__(self, step: int = 0, **asked: bool):
        self.step, self.asked, self.called = step, asked, []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def note(args, state, control, **_):
            self.called.append((name, state.global_step))
            if (name, state.global_step) == ("on_step_end", self.step):
                vars(control).update(self.asked)

        return note


def looped(train, kind, notes, settings, **arguments):
    given = {"eval_dataset": Dataset.from_list(PLAIN[:2]), "callbacks": [notes], **arguments}
    return train(kind, quiet("Llama"), arguments=given, **settings)


@pytest.mark.parametrize(
    ("notes", "settings"),
    [
        ({}, EVALUATED | SAVED),
        ({"step": 3, "should_training_stop": True}, EVALUATED),
        ({"step": 3, "should_epoch_stop": True}, SAVED),
        ({"step": 4, "should_save": True, "should_evaluate": True, "should_log": True}, {}),
    ],
)
def test_callbacks_are_called_as_by_trl_and_get_what_they_ask_for(notes, settings, train, tmp_path):
    called = []
    for kind in (GRPOTrainer, RapidTrainer):
        callback, folder = Notes(**notes), tmp_path / kind.__name__
        given = {"logging_steps": 6, "per_device_eval_batch_size": 4, "folder": folder}
        looped(train, kind, callback, LOOP | given | settings)
        saved = sorted(path.name for path in folder.glob("checkpoint-*"))
        called.append((callback.called, saved))
    assert called[0] == called[1]
    assert called[0][0][-1][0] == "on_train_end"


def test_an_evaluation_leaves_training_as_it_was(train):
    """Scripted samples are not drawn, so that weights are those without an evaluation."""
    plain, evaluated = (
        looped(train, ScriptedTrainer, Notes(), LOOP | settings) for settings in ({}, EVALUATED)
    )
    assert torch.equal(weights(plain), weights(evaluated))
    assert len(logged(evaluated, "eval_reward")) == 3


def test_evaluation_and_prediction_of_datasets_and_streams(train):
    rows = Dataset.from_list(PLAIN)
    evaluated = {"one": rows.select(range(2)), "stream": STREAM}
    settings = LOOP | EVALUATED | {"max_steps": 2, "num_generations_eval": 4}
    trainer = looped(train, RapidTrainer, Notes(), settings, eval_dataset=evaluated)
    assert logged(trainer, "eval_one_loss") and logged(trainer, "eval_stream_loss")
    assert len(logged(trainer, "eval_reward")) == 2
    assert 0 <= trainer.evaluate(rows.select(range(3)))["eval_reward"] <= 1
    assert isfinite(trainer.predict(rows.select(range(4))).metrics["test_loss"])


def test_prediction_samples_groups_as_evaluation_does(train):
    """TRL's takes a completion of each prompt, and compares these."""
    trainer = looped(train, ScriptedTrainer, Notes(), LOOP)
    rows = Dataset.from_list(PLAIN).select(range(3))
    found = trainer.predict(rows).metrics["test_loss"]
    assert found == trainer.evaluate(rows)["eval_loss"]


@pytest.mark.parametrize("steps", [2, 6])
def test_a_stream_trains_on_what_a_dataset_does(steps, train):
    """Without shuffling, whose order is a stream's own."""
    settings = LOOP | {"shuffle_dataset": False, "max_steps": steps}
    runs = [
        looped(train, ScriptedTrainer, Notes(), settings, train_dataset=rows)
        for rows in (Dataset.from_list(PLAIN), STREAM)
    ]
    assert torch.equal(*map(weights, runs))


def test_the_best_model_is_loaded_and_training_stops_early(train):
    settings = EVALUATED | {"save_strategy": "steps", "save_steps": 2, "max_steps": 8}
    best = {"metric_for_best_model": "eval_reward", "load_best_model_at_end": True}
    best |= {"greater_is_better": False, "learning_rate": 0.0}  # which no later one is below
    trainer = looped(train, ScriptedTrainer, EarlyStoppingCallback(2), LOOP | settings | best)
    assert trainer.state.best_model_checkpoint
    assert trainer.state.global_step == 6
