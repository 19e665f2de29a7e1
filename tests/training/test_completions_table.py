"""The table of completions of `log_completions`: printed once per batch, and safe to print."""

import json
import re
import time
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from trl.trainer import grpo_trainer

from rapid.training.trl.completions_table import NOT_GRADED, SHOWN_CHARACTERS, print_completions
from tests.training.loops import partial_reward, train_rapid

TABLE = {"log_completions": True, "max_steps": 8, "H": 4}


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def print_rows(capsys, completions, **changes) -> str:
    arguments = {
        "prompts": ["prompt"] * len(completions),
        "rewards": {"reward": [0.5] * len(completions)},
        "advantages": [0.25] * len(completions),
        "step": 3,
    } | changes
    print_completions(completions=completions, **arguments)
    return capsys.readouterr().out


# In a run -----------------------------------------------------------------------------------------


def test_table_appears_once_for_each_inference_batch(toy_model, tmp_path, capsys):
    train_rapid(toy_model, tmp_path, "rapid", num_completions_to_print=3, **TABLE)
    printed = capsys.readouterr().out
    assert re.findall(r"Step (\d+)", printed) == ["1", "5"]
    assert printed.count("prompt ") == 6  # three rows in each table
    files = sorted((tmp_path / "completions").glob("*.parquet"))
    assert [file.name for file in files] == [
        "completions_00001.parquet",
        "completions_00005.parquet",
    ]
    first, second = map(pd.read_parquet, files)
    assert len(first) == len(second) == 64
    assert [*first["completion"]] != [*second["completion"]]


def test_table_of_evaluation_appears_too(toy_model, tmp_path, capsys):
    trainer = train_rapid(
        toy_model, tmp_path, "rapid", per_device_eval_batch_size=8, **TABLE | {"max_steps": 1}
    )
    capsys.readouterr()
    trainer.evaluate(trainer.train_dataset.select(range(2)))
    assert capsys.readouterr().out.count("Step 1") == 1


def test_table_is_not_printed_without_the_setting(toy_model, tmp_path, capsys):
    train_rapid(toy_model, tmp_path, "rapid", max_steps=1)
    assert "Advantage" not in capsys.readouterr().out
    assert not (tmp_path / "completions").exists()


def test_ungraded_completions_are_shown_as_such(toy_model, tmp_path, capsys):
    trainer = train_rapid(toy_model, tmp_path, "rapid", partial_reward, **TABLE | {"max_steps": 1})
    rewards = torch.tensor(trainer._logs["rewards"]["partial_reward"])
    printed = capsys.readouterr().out
    assert 0 < rewards.isnan().sum() < len(rewards)
    assert printed.count(NOT_GRADED) == rewards.isnan().sum()
    assert " nan " not in printed
    table = pd.read_parquet(tmp_path / "completions")
    assert table["partial_reward"].isna().tolist() == rewards.isnan().tolist()


def test_completions_of_a_function_that_hangs_are_shown_as_ungraded(toy_model, tmp_path, capsys):
    def hanging_reward(completions, **_):
        time.sleep(0.5)
        return [1.0] * len(completions)

    rewards = [hanging_reward, partial_reward]
    settings = TABLE | {"max_steps": 1, "n_step": 4, "H": 1, "reward_timeout": 0.01}
    train_rapid(toy_model, tmp_path, "rapid", rewards, **settings)
    assert capsys.readouterr().out.count(NOT_GRADED) == 8  # of two functions, four completions


def test_columns_of_functions_with_one_name_are_distinct_everywhere(
    toy_model, tmp_path, capsys, monkeypatch
):
    tables = []
    service = SimpleNamespace(
        run=object(), Table=lambda dataframe: dataframe, log=lambda row: tables.append(row)
    )
    monkeypatch.setattr(grpo_trainer, "wandb", service, raising=False)
    rewards = [
        lambda completions, **_: [0.125] * len(completions),
        lambda completions, **_: [0.875] * len(completions),
    ]

    def log_to_wandb(self, *arguments):
        self.args.report_to = ["wandb"]
        return log(self, *arguments)

    log = grpo_trainer.GRPOTrainer.log
    monkeypatch.setattr(grpo_trainer.GRPOTrainer, "log", log_to_wandb)
    train_rapid(toy_model, tmp_path, "rapid", rewards, **TABLE | {"max_steps": 5})
    assert len(tables) == 2  # one for each inference batch
    printed = capsys.readouterr().out
    for name, value in {"<lambda>-1": 0.125, "<lambda>-2": 0.875}.items():
        assert {*tables[0]["completions"][name]} == {value}
        assert name in printed


# On a terminal ------------------------------------------------------------------------------------


def test_long_texts_keep_both_ends(capsys):
    text = "a" * SHOWN_CHARACTERS + "b" * 5000 + "c" * SHOWN_CHARACTERS
    printed = print_rows(capsys, [text], prompts=[[{"role": "user", "content": text}]])
    assert printed.count("a" * 10) and printed.count("c" * 10) and "bb" not in printed
    assert len(re.findall(r"5,000", printed)) == 2
    exact = "x" * 2 * SHOWN_CHARACTERS
    assert print_rows(capsys, [exact]).count("x") == len(exact)


@pytest.mark.parametrize(
    "hostile", ["\x1b[2Jgone", "\x1b]0;title\x07", "\x9b31m", "safe\u202eevil", "over\rwritten"]
)
@pytest.mark.parametrize("in_messages", [False, True])
def test_control_characters_do_not_reach_the_terminal(capsys, hostile, in_messages):
    entry = [{"role": "assistant", "content": hostile}] if in_messages else hostile
    printed = print_rows(
        capsys, [entry], prompts=[entry], extra={"parsed": [hostile], "other": [None]}
    )
    assert not {*hostile} & {*printed} & {*"\x1b\x07\x9b\u202e\r"}
    assert printed.count(ascii(hostile)[1:5]) >= 3


def test_tool_calls_are_shown(capsys):
    arguments = {"code": "\x1b[2J" + "x" * 10 * SHOWN_CHARACTERS}
    for text_or_dict in (arguments, json.dumps(arguments)):
        call = {"type": "function", "function": {"name": "run", "arguments": text_or_dict}}
        printed = print_rows(capsys, [[{"role": "assistant", "tool_calls": [call]}]])
        assert "run(code=" in printed and "\x1b" not in printed


def test_rows_of_the_sample_belong_together(capsys):
    names = [f"row{number:02}" for number in range(20)]
    values = [number / 100 for number in range(20)]
    printed = print_rows(
        capsys,
        names,
        rewards={"reward": values},
        advantages=[-value for value in values],
        num_samples=5,
    )
    rows = re.findall(r"row(\d\d)\W+0\.(\d\d)\W+-0\.(\d\d)", printed)
    assert len(rows) == 5
    assert all(len({*row}) == 1 for row in rows)
