"""The examples of docs/rewards.md run."""

import asyncio
import json
import re

import pytest

from tests.conftest import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/rewards.md").read_text(), re.DOTALL)


MARKERS = {  # a text that only one block contains, by a name for the block
    "GRPOTrainer": 'args=GRPOConfig("output"),',
    "reward weights": "reward_weights=",
    "RapidTrainer": "RapidTrainer(",
    "mixed dataset": "print(math_reward(",
    "settings": "workers=16",
    "verl": "def compute_score",
    "verifiers": "async def correct_answer",
}


def find_block(name: str) -> str:
    [block] = [block for block in BLOCKS if MARKERS[name] in block]
    return block


def run_block(block: str) -> dict:
    names: dict = {}
    exec(compile(block, "docs/rewards.md", "exec"), names)
    return names


TRL_SETTINGS = '"output", use_cpu=True, bf16=False, report_to=[], num_generations=4, max_steps=2'


@pytest.mark.parametrize(
    ("name", "changes", "steps"),
    [
        (
            "GRPOTrainer",
            {'"output"': f"{TRL_SETTINGS}, max_completion_length=6, logging_steps=1"},
            2,
        ),
        (
            "reward weights",
            {
                '"output", max_completion_length=512': f"{TRL_SETTINGS}, max_completion_length=6, "
                "logging_steps=1",
                "-Instruct": "",
                "max_completion_len=512, soft_punish_cache=128": "max_completion_len=6, "
                "soft_punish_cache=4",
            },
            2,
        ),
        ("RapidTrainer", {'"output"': '"output", max_completion_length=6, max_steps=4'}, 4),
    ],
)
def test_trainers_of_the_page_train(name, changes, steps, chat_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = find_block(name)
    for old, new in (changes | {"Qwen/Qwen2.5-0.5B": str(chat_model)}).items():
        assert old in block
        block = block.replace(old, new)
    trainer = run_block(block)["trainer"]
    [state] = tmp_path.glob("output/checkpoint-*/trainer_state.json")
    assert json.loads(state.read_text())["global_step"] == steps
    if name == "reward weights":
        logs = trainer.state.log_history[0]
        names = ["math_reward", "think_format_reward", "soft_overlong_punishment_reward"]
        means = [logs[f"rewards/{name}/mean"] for name in names]
        assert logs["reward"] == pytest.approx(means[0] + 0.2 * means[1] + 0.5 * means[2])
        assert means[2] < 0  # all completions are too long


def test_every_block_of_the_page_is_run_here():
    assert {find_block(name) for name in MARKERS} == {*BLOCKS}


def test_the_example_of_a_mixed_dataset_prints_what_its_comments_say(capsys):
    block = find_block("mixed dataset")
    run_block(block)
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print.*  # (.+)$", block, re.M)


def test_the_settings_of_the_page_exist():
    reward = run_block(find_block("settings"))["code_reward"]
    assert (reward.timeout, reward.workers) == (5, 16)


def test_verl_gets_a_number():
    compute_score = run_block(find_block("verl"))["compute_score"]
    question = {"question": "Write 1/2 as a decimal."}
    assert compute_score("gsm8k", r"\boxed{0.5}", "0.5", question) == 1.0
    assert compute_score("gsm8k", r"\boxed{\frac12}", "0.5", extra_info=question) == 0.0
    assert compute_score("gsm8k", r"\boxed{\frac12}", "0.5") == 1.0
    assert compute_score("gsm8k", r"\boxed{1}", None, reward_model_tokenizer=None) == 0.0


def test_verifiers_gets_a_coroutine():
    correct_answer = run_block(find_block("verifiers"))["correct_answer"]
    prompt = [{"role": "user", "content": "Write 1/2 as a decimal."}]

    async def grade():
        completions = [
            [{"role": "assistant", "content": rf"\boxed{{{x}}}"}] for x in ("0.5", "1/2")
        ]
        return await asyncio.gather(*(correct_answer(prompt, text, "0.5") for text in completions))

    assert asyncio.run(grade()) == [1.0, 0.0]
