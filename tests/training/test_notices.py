"""What goes on without an error and learns nothing is mentioned once, with the step."""

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer

from rapid import RapidConfig, RapidTrainer
from rapid.artifacts.files import write_jsonl
from rapid.artifacts.runs import StepRecord, has_learned_nothing
from rapid.training.notices import Notices, unread_keys
from tests.training.loops import COMMON, ScriptedTrainer, logged, run

GROUP = 2
STEPS = {"n_step": 16, "H": 1, "objective": "rapid"}
CONFIG = SimpleNamespace(
    max_completion_length=6,
    mask_truncated_completions=False,
    vllm_importance_sampling_mode="sequence_mask",
    vllm_importance_sampling_clip_max=3.0,
)


def constant(reward):
    return lambda completions, **_: [reward] * len(completions)


def graded(*rewards):
    """An inference batch of these rewards."""
    return {"rewards": torch.tensor(rewards), "graded": torch.ones(len(rewards), dtype=torch.bool)}


@pytest.fixture
def notices():
    return Notices(CONFIG, is_main=True)


def messages_about(caplog, topic: str) -> list[str]:
    return [text for text in caplog.messages if topic in text]


# In a run -----------------------------------------------------------------------------------------


class Endless(ScriptedTrainer):
    equal_lengths = True


@pytest.mark.parametrize(("reward", "shown"), [(0.0, "0"), (0.5, "0.5")])
def test_warnings_are_given_once_in_the_run_and_at_its_end(
    toy_model, tmp_path, caplog, reward, shown
):
    settings = STEPS | {"reward": constant(reward), "max_steps": 6}
    trainer = run(toy_model, tmp_path, **settings, trainer=Endless)
    assert logged(trainer, "completions/clipped_ratio") == [1] * 6
    (message,) = messages_about(caplog, "cut off")
    assert message.startswith("step 1: all 16 completions were cut off at max_completion_length=6")
    assert "Raise it; if completions never end, check whether" in message
    assert message.endswith("This warning is given once.")
    first, last = messages_about(caplog, "reward")
    equal = f"every reward was {shown}"
    assert first.startswith(
        f"step 4: in the last 4 inference batches (16 groups) {equal}, so nothing"
    )
    assert last.startswith(f"step 6: the run has ended, and nothing was learned: {equal} in all of")
    assert all(
        "Check the reward function with a completion that deserves" in m for m in (first, last)
    )


def test_rewards_that_differ_now_and_then_are_no_reason(toy_model, tmp_path, caplog):
    def seldom(completions, trainer_state, **_):
        learns = trainer_state.global_step % 3 == 2
        return [float(learns and place % 2) for place in range(len(completions))]

    trainer = run(toy_model, tmp_path, **STEPS, reward=seldom, max_steps=8)
    assert 0 < sum(logged(trainer, "rapid/signal")) < 8
    assert not messages_about(caplog, "reward")


def test_equal_sums_of_rewards_that_are_normalized_first_are_no_reason(toy_model, tmp_path, caplog):
    def even(completions, **_):
        return [float(place % 2) for place in range(len(completions))]

    def odd(completions, **_):
        return [1.0 - place % 2 for place in range(len(completions))]

    both = {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 1.0]}
    settings = STEPS | {"objective": "trl", "max_steps": 5} | both
    trainer = run(toy_model, tmp_path, **settings, reward=[even, odd])
    assert logged(trainer, "rapid/signal") == [0] * 5
    assert not messages_about(caplog, "reward")


# By itself ----------------------------------------------------------------------------------------


def test_a_completion_that_ends_is_enough(notices, caplog):
    notices.check_lengths(1, 15 / 16, 16)
    assert not caplog.messages
    notices._config = SimpleNamespace(**vars(CONFIG) | {"mask_truncated_completions": True})
    notices.check_lengths(2, 1.0, 16)
    (message,) = caplog.messages
    assert message.startswith("step 2: ") and "=6, and nothing is learned from them. " in message


def test_few_groups_say_nothing_yet(notices, caplog):
    """Five batches of one group, with or without rewards."""
    for step, reward in enumerate((0.0, 1.0, 0.0, 0.0, 1.0), 1):
        notices.check_rewards(step, graded(reward, reward), GROUP)
    assert not caplog.messages
    for step in (6, 7):
        notices.check_rewards(step, graded(*[0.0] * 10 * GROUP), GROUP)
    (message,) = caplog.messages
    assert message.startswith("step 7: in the last 7 inference batches (25 groups) all rewards")
    assert "all rewards of each group were equal" in message


def test_groups_that_are_not_graded_are_not_counted(notices, caplog):
    batch = graded(*[0.0] * 16 * GROUP)
    for step in range(1, 5):
        notices.check_rewards(step, batch | {"graded": ~batch["graded"]}, GROUP)
    state = SimpleNamespace(global_step=4, log_history=[])
    notices.on_train_end(None, state, None)
    assert not caplog.messages


def test_what_was_learned_before_a_run_was_resumed_counts(notices, caplog):
    notices.check_rewards(5, graded(0.0, 0.0), GROUP)
    history = [{"rapid/signal": 0.0}, {"loss": 1.0}, {"rapid/signal": 0.25}]
    notices.on_train_end(None, SimpleNamespace(global_step=5, log_history=history), None)
    assert not caplog.messages
    notices.on_train_end(None, SimpleNamespace(global_step=5, log_history=history[:2]), None)
    assert len(caplog.messages) == 1


def test_another_process_says_nothing(caplog):
    notices = Notices(CONFIG, is_main=False)
    notices.check_lengths(1, 1.0, 16)
    notices.check_messages(1, [[{"role": "user", "content": "a", "more": "b"}]], str)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("signals", "nothing"),
    [([0.0, 0.0], True), ([0.0, 0.5], False), ([None, 0.0], True), ([None, None], False)],
)
def test_steps_tell_whether_a_run_has_learned_nothing(tmp_path, signals, nothing):
    common = {"seconds": 1.0, "loss": 0.0, "gradient_norm": 0.0}
    steps = [StepRecord(step=i, signal=s, **common) for i, s in enumerate(signals, 1)]
    write_jsonl(tmp_path / "steps.jsonl", steps)
    assert has_learned_nothing(tmp_path) == nothing


# Importance weights -------------------------------------------------------------------------------


def weighed(*ratios):
    """An inference batch of two completions, of three tokens and of one."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    return {"completion_mask": mask, "importance_sampling_ratio": torch.tensor(ratios)}


@pytest.mark.parametrize(
    ("ratios", "share"),
    [
        (([0.0], [0.0]), 1),
        (([1.2], [0.0]), 0.5),
        (([0.0, 0.0, 0.0], [0.0, 1.0, 1.0]), 1),
        (([0.0, 0.0, 1.0], [0.5, 0.0, 0.0]), 1 / 3),
    ],
)
def test_that_all_is_masked_by_the_importance_cap_is_mentioned(notices, caplog, ratios, share):
    for step in (1, 2):
        found = notices.check_importance(step, weighed(*ratios))
        assert found == {"sampling/importance_sampling_ratio/masked": pytest.approx(share)}
    assert len(caplog.messages) == (share == 1)
    if share == 1:
        assert caplog.messages[0].startswith(
            "step 1: vllm_importance_sampling_mode='sequence_mask' and clip_max=3.0 mask all 2 "
        )
        assert "raise vllm_importance_sampling_clip_max" in caplog.messages[0]


# Messages -----------------------------------------------------------------------------------------

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% elif m.reasoning %}"
    "({{ m.reasoning }}){% endif %}{% if m.name is defined %}{{ m.name + '!' }}{% endif %}"
    "{% endfor %}"
)


def conversation(content="q", **keys):
    return [{"role": "user", "content": content}, {"role": "assistant", "content": "a", **keys}]


@pytest.mark.parametrize(
    ("prompts", "unread"),
    [
        ([conversation()], []),
        ([conversation(scratchpad="s"), conversation()], ["scratchpad"]),
        ([conversation(reasoning_content="s")], []),
        ([conversation(reasoning_content="s", reasoning="s")], []),
        ([conversation(reasoning="s", scratchpad="s", train=False)], ["scratchpad", "train"]),
        ([conversation(name="s"), conversation(scratchpad=None)], []),
        ([conversation(reasoning_content=""), conversation(reasoning_content="s")], []),
    ],
)
def test_a_key_without_which_prompts_are_rendered_alike_is_unread(toy_model, prompts, unread):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)

    def render(prompt):
        return tokenizer.apply_chat_template(prompt, chat_template=TEMPLATE, tokenize=False)

    assert unread_keys(prompts, render) == unread


def test_a_key_without_which_a_prompt_cannot_be_rendered_is_read():
    def render(prompt):
        return "".join(message["name"] for message in prompt)

    assert unread_keys([[{"role": "user", "content": "a", "name": "b"}]], render) == []


def test_messages_are_looked_at_once_and_few_of_them(notices, caplog):
    rendered = []

    def render(prompt):
        rendered.append(prompt)
        return prompt[0]["content"]

    many = [conversation(f"q{i}", scratchpad="s") for i in range(1000)]
    for step in (3, 4):
        notices.check_messages(step, many, render)
    assert len(rendered) == 4 * 32
    (message,) = caplog.messages
    assert message.startswith("step 3: the chat template does not use 'scratchpad' of messages: ")


def test_keys_that_the_template_never_reads_are_mentioned_before_sampling(
    toy_model, tmp_path, caplog
):
    tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
    tokenizer.chat_template = TEMPLATE
    rows = [{"prompt": conversation(f"q{i}", scratchpad="s", reasoning="r")} for i in range(8)]
    sizes = {"n_step": 8, "H": 1, "max_completion_length": 4, "max_steps": 2}
    args = RapidConfig(str(tmp_path), **COMMON | sizes)
    data, model = Dataset.from_list(rows), str(toy_model)
    RapidTrainer(model, constant(0.0), args, data, processing_class=tokenizer).train()
    (message,) = messages_about(caplog, "chat template")
    assert message.startswith("step 1: the chat template does not use 'scratchpad' of messages")
