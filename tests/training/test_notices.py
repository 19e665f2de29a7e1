"""Runs that learn nothing without an error get one warning, which names the step."""

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer

from rapid import RapidConfig, RapidTrainer
from rapid.algorithms import RAPID
from rapid.artifacts.files import write_jsonl
from rapid.artifacts.runs import StepRecord, had_no_signal
from rapid.training.notices import Notices, find_unread_keys
from tests.training.loops import COMMON, ScriptedTrainer, logged_values, train_rapid

GROUP_SIZE = 2
STEPS = {"n_step": 16, "H": 1, "objective": "rapid"}
CONFIG = SimpleNamespace(
    max_completion_length=6,
    mask_truncated_completions=False,
    vllm_importance_sampling_mode="sequence_mask",
    vllm_importance_sampling_clip_max=3.0,
    algorithm=RAPID,
    settings=RAPID.parameters(**RAPID.defaults),
    use_rollout_logps=False,
)


def constant_reward(reward):
    return lambda completions, **_: [reward] * len(completions)


def make_graded_batch(*rewards):
    """Return an inference batch with these rewards."""
    return {"rewards": torch.tensor(rewards), "graded": torch.ones(len(rewards), dtype=torch.bool)}


@pytest.fixture
def notices():
    return Notices(CONFIG, is_main=True)


def messages_about(caplog, topic: str) -> list[str]:
    return [text for text in caplog.messages if topic in text]


# In a run -----------------------------------------------------------------------------------------


class EndlessTrainer(ScriptedTrainer):
    equal_lengths = True


@pytest.mark.parametrize(("reward", "shown_reward"), [(0.0, "0"), (0.5, "0.5")])
def test_warnings_appear_once_during_run_and_at_end(
    toy_model, tmp_path, caplog, reward, shown_reward
):
    settings = STEPS | {"reward": constant_reward(reward), "max_steps": 6}
    trainer = train_rapid(toy_model, tmp_path, **settings, trainer_class=EndlessTrainer)
    assert logged_values(trainer, "completions/clipped_ratio") == [1] * 6
    (message,) = messages_about(caplog, "cut off")
    assert message.startswith("step 1: all 16 completions were cut off at max_completion_length=6")
    assert "Raise it; if completions never end, check whether" in message
    assert message.endswith("This warning is given once.")
    first, last = messages_about(caplog, "reward")
    equal = f"every reward was {shown_reward}"
    assert first.startswith(
        f"step 4: in the last 4 inference batches (16 groups) {equal}, so nothing"
    )
    assert last.startswith(f"step 6: the run has ended, and nothing was learned: {equal} in all of")
    assert all(
        "Check the reward function with a completion that deserves" in m for m in (first, last)
    )


def test_occasional_signal_gives_no_warning(toy_model, tmp_path, caplog):
    def occasional_reward(completions, trainer_state, **_):
        learns = trainer_state.global_step % 3 == 2
        return [float(learns and place % 2) for place in range(len(completions))]

    trainer = train_rapid(toy_model, tmp_path, **STEPS, reward=occasional_reward, max_steps=8)
    assert 0 < sum(logged_values(trainer, "rapid/signal")) < 8
    assert not messages_about(caplog, "reward")


def test_equal_sums_of_normalized_rewards_give_no_warning(toy_model, tmp_path, caplog):
    def even_reward(completions, **_):
        return [float(place % 2) for place in range(len(completions))]

    def odd_reward(completions, **_):
        return [1.0 - place % 2 for place in range(len(completions))]

    reward_settings = {
        "multi_objective_aggregation": "normalize_then_sum",
        "reward_weights": [1.0, 1.0],
    }
    settings = STEPS | {"objective": "trl", "max_steps": 5} | reward_settings
    trainer = train_rapid(toy_model, tmp_path, **settings, reward=[even_reward, odd_reward])
    assert logged_values(trainer, "rapid/signal") == [0] * 5
    assert not messages_about(caplog, "reward")


# Notices alone ------------------------------------------------------------------------------------


def test_one_ended_completion_prevents_warning(notices, caplog):
    notices.check_lengths(1, 15 / 16, 16)
    assert not caplog.messages
    notices._config = SimpleNamespace(**vars(CONFIG) | {"mask_truncated_completions": True})
    notices.check_lengths(2, 1.0, 16)
    (message,) = caplog.messages
    assert message.startswith("step 2: ") and "=6, and nothing is learned from them. " in message


def test_few_groups_give_no_warning_yet(notices, caplog):
    """Five batches of one group are too few for a warning."""
    for step, reward in enumerate((0.0, 1.0, 0.0, 0.0, 1.0), 1):
        notices.check_rewards(step, make_graded_batch(reward, reward), GROUP_SIZE)
    assert not caplog.messages
    for step in (6, 7):
        notices.check_rewards(step, make_graded_batch(*[0.0] * 10 * GROUP_SIZE), GROUP_SIZE)
    (message,) = caplog.messages
    assert message.startswith("step 7: in the last 7 inference batches (25 groups) all rewards")
    assert "all rewards of each group were equal" in message


@pytest.mark.parametrize(
    ("change", "learns"),
    [
        ({}, False),
        ({"settings": RAPID.parameters(**RAPID.defaults, baseline="none")}, True),
        ({"settings": RAPID.parameters(**RAPID.defaults, equal_groups="reinforced")}, True),
        ({"use_rollout_logps": True}, True),  # weights differ, and so do the weighted rewards
    ],
)
def test_equal_rewards_with_a_gradient_give_no_warning(caplog, change, learns):
    state = SimpleNamespace(global_step=4, log_history=[])
    for reward, is_warned in ((0.0, True), (1.0, not learns)):
        notices = Notices(SimpleNamespace(**vars(CONFIG) | change), is_main=True)
        for step in range(1, 5):
            notices.check_rewards(step, make_graded_batch(*[reward] * 16 * GROUP_SIZE), GROUP_SIZE)
        notices.on_train_end(None, state, None)
        warnings = [text.partition(":")[0] for text in caplog.messages]
        assert warnings == ["step 3", "step 4"] * is_warned
        caplog.clear()


def test_ungraded_groups_are_not_counted(notices, caplog):
    batch = make_graded_batch(*[0.0] * 16 * GROUP_SIZE)
    for step in range(1, 5):
        notices.check_rewards(step, batch | {"graded": ~batch["graded"]}, GROUP_SIZE)
    state = SimpleNamespace(global_step=4, log_history=[])
    notices.on_train_end(None, state, None)
    assert not caplog.messages


def test_signal_before_resume_counts(notices, caplog):
    notices.check_rewards(5, make_graded_batch(0.0, 0.0), GROUP_SIZE)
    history = [{"rapid/signal": 0.0}, {"loss": 1.0}, {"rapid/signal": 0.25}]
    notices.on_train_end(None, SimpleNamespace(global_step=5, log_history=history), None)
    assert not caplog.messages
    notices.on_train_end(None, SimpleNamespace(global_step=5, log_history=history[:2]), None)
    assert len(caplog.messages) == 1


def test_warning_at_the_end_of_a_resumed_run_names_its_first_step(notices, caplog):
    notices.on_train_begin(None, SimpleNamespace(global_step=4), None)
    notices.check_rewards(5, make_graded_batch(0.0, 0.0), GROUP_SIZE)
    notices.on_train_end(None, SimpleNamespace(global_step=5, log_history=[]), None)
    (message,) = caplog.messages
    assert "every reward was 0 in all of its inference batches since step 4. " in message


def test_only_main_process_warns(caplog):
    notices = Notices(CONFIG, is_main=False)
    notices.check_lengths(1, 1.0, 16)
    notices.check_messages(1, [[{"role": "user", "content": "a", "more": "b"}]], str)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("signals", "learned_nothing"),
    [([0.0, 0.0], True), ([0.0, 0.5], False), ([None, 0.0], True), ([None, None], False)],
)
def test_run_without_signal_has_learned_nothing(tmp_path, signals, learned_nothing):
    common = {"seconds": 1.0, "loss": 0.0, "gradient_norm": 0.0}
    steps = [
        StepRecord(step=step, signal=signal, **common) for step, signal in enumerate(signals, 1)
    ]
    write_jsonl(tmp_path / "steps.jsonl", steps)
    assert had_no_signal(tmp_path) == learned_nothing


# Importance weights -------------------------------------------------------------------------------


def make_weighted_batch(*ratios):
    """Return an inference batch of two completions, of three tokens and of one."""
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
def test_warning_if_importance_cap_masks_everything(notices, caplog, ratios, share):
    for step in (1, 2):
        metrics = notices.check_importance(step, make_weighted_batch(*ratios))
        assert metrics == {"sampling/importance_sampling_ratio/masked": pytest.approx(share)}
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


def make_conversation(content="q", **keys):
    return [{"role": "user", "content": content}, {"role": "assistant", "content": "a", **keys}]


@pytest.mark.parametrize(
    ("prompts", "unread"),
    [
        ([make_conversation()], []),
        ([make_conversation(scratchpad="s"), make_conversation()], ["scratchpad"]),
        ([make_conversation(reasoning_content="s")], []),
        ([make_conversation(reasoning_content="s", reasoning="s")], []),
        ([make_conversation(reasoning="s", scratchpad="s", train=False)], ["scratchpad", "train"]),
        ([make_conversation(name="s"), make_conversation(scratchpad=None)], []),
        ([make_conversation(reasoning_content=""), make_conversation(reasoning_content="s")], []),
    ],
)
def test_message_key_that_does_not_change_rendering_is_unread(toy_model, prompts, unread):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)

    def render(prompt):
        return tokenizer.apply_chat_template(prompt, chat_template=TEMPLATE, tokenize=False)

    assert find_unread_keys(prompts, render) == unread


def test_message_key_required_for_rendering_is_read():
    def render(prompt):
        return "".join(message["name"] for message in prompt)

    assert find_unread_keys([[{"role": "user", "content": "a", "name": "b"}]], render) == []


def test_messages_are_checked_once_on_a_sample(notices, caplog):
    rendered = []

    def render(prompt):
        rendered.append(prompt)
        return prompt[0]["content"]

    conversations = [make_conversation(f"q{i}", scratchpad="s") for i in range(1000)]
    for step in (3, 4):
        notices.check_messages(step, conversations, render)
    assert len(rendered) == 4 * 32
    (message,) = caplog.messages
    assert message.startswith("step 3: the chat template does not use 'scratchpad' of messages: ")


def test_warning_of_unread_message_keys_at_first_step(toy_model, tmp_path, caplog):
    tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
    tokenizer.chat_template = TEMPLATE
    rows = [{"prompt": make_conversation(f"q{i}", scratchpad="s", reasoning="r")} for i in range(8)]
    sizes = {"n_step": 8, "H": 1, "max_completion_length": 4, "max_steps": 2}
    args = RapidConfig(str(tmp_path), **COMMON | sizes)
    data, model = Dataset.from_list(rows), str(toy_model)
    RapidTrainer(model, constant_reward(0.0), args, data, processing_class=tokenizer).train()
    (message,) = messages_about(caplog, "chat template")
    assert message.startswith("step 1: the chat template does not use 'scratchpad' of messages")
