"""The examples of docs/rewards.md run, and its table is what `performance.verdicts` measures."""

import asyncio
import json
import re

import pytest

from performance import verdicts
from rapid.rewards import MathReward
from tests.conftest import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/rewards.md").read_text(), re.DOTALL)


def find_block(text: str) -> str:
    [block] = [block for block in BLOCKS if text in block]
    return block


def run_block(block: str) -> dict:
    names: dict = {}
    exec(compile(block, "docs/rewards.md", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("trainer", "changes", "steps"),
    [
        (
            "GRPOTrainer(",
            {
                '"output"': '"output", use_cpu=True, bf16=False, num_generations=4, '
                "max_completion_length=6, max_steps=2"
            },
            2,
        ),
        ("RapidTrainer(", {'"output"': '"output", max_completion_length=6, max_steps=4'}, 4),
    ],
)
def test_trainers_of_the_page_train(trainer, changes, steps, toy_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = find_block(trainer)
    for old, new in ({"Qwen/Qwen2.5-0.5B": str(toy_model)} | changes).items():
        assert old in block
        block = block.replace(old, new)
    run_block(block)
    [state] = tmp_path.glob("output/checkpoint-*/trainer_state.json")
    assert json.loads(state.read_text())["global_step"] == steps


def test_a_mixed_dataset_is_graded_as_the_page_says(capsys):
    block = find_block("print(math_reward(")
    run_block(block)
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print.*  # (.+)$", block, re.M)


def test_settings_of_the_page_are_settings():
    reward = run_block(find_block("workers=16"))["code_reward"]
    assert (reward.timeout, reward.workers) == (5, 16)


def test_verl_gets_a_number():
    compute_score = run_block(find_block("def compute_score"))["compute_score"]
    question = {"question": "Write 1/2 as a decimal."}
    assert compute_score("gsm8k", r"\boxed{0.5}", "0.5", question) == 1.0
    assert compute_score("gsm8k", r"\boxed{\frac12}", "0.5", extra_info=question) == 0.0
    assert compute_score("gsm8k", r"\boxed{\frac12}", "0.5") == 1.0
    assert compute_score("gsm8k", r"\boxed{1}", None) == 0.0


def test_verifiers_gets_a_coroutine():
    right_answer = run_block(find_block("async def right_answer"))["right_answer"]
    prompt = [{"role": "user", "content": "Write 1/2 as a decimal."}]

    async def grade():
        completions = [
            [{"role": "assistant", "content": rf"\boxed{{{x}}}"}] for x in ("0.5", "1/2")
        ]
        return await asyncio.gather(*(right_answer(prompt, text, "0.5") for text in completions))

    assert asyncio.run(grade()) == [1.0, 0.0]


def test_verdicts_a_second_are_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(verdicts, "PROBLEMS", {MathReward: 3})
    monkeypatch.setattr(verdicts, "PAGE", tmp_path / "rewards.md")
    monkeypatch.setattr(verdicts, "count_cores", lambda: 2)
    verdicts.main(["--write"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows] == [["math_reward", "1"], ["math_reward", "2"]]
    page = (tmp_path / "rewards.md").read_text()
    assert "| " + " | ".join(rows[0]) + " |" in page and "at commit" in page
