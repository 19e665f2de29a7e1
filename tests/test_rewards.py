"""Reward functions for any trainer return the graders' verdicts on the rows of a dataset."""

import json
import math
import re
import textwrap
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

from rapid.grading.code import sandbox
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.math.grader import MathGrader
from rapid.grading.shared import MAX_LOGGED_PROBLEMS
from rapid.rewards import CodeReward, MathReward, code_reward, lean_reward, math_reward
from tests.benchmarks.test_hub_mbpp import make_row as make_hub_row
from tests.benchmarks.test_prompts import PROBLEMS
from tests.grading.code.attacks import FORBIDDEN_ACTIONS, FORGERIES, OUTPUTS, RIGHT, SOURCES
from tests.grading.lean.test_proofs import FALSE, FORBIDDEN, NOT_PROVED, PROOFS
from tests.grading.math.attacks import ATTACKS, PENS, split_answers

TESTS = ["assert f(1) == 2", "assert f(-7) == -14"]
TEST_COLUMN = {"tests": [TESTS]}
DOUBLE = "def double(n): return 2 * n"  # solves PROBLEMS["mbpp_plus"] and make_hub_row()
MBPP_PLUS_ROW = PROBLEMS["mbpp_plus"].model_dump(exclude={"prompt"})


def grade(reward, completion, **columns) -> tuple[float | None, str]:
    """Return the reward of a completion, and the reason of its verdict."""
    [value] = reward([""], [completion], **columns)
    [verdict] = reward.grade([""], [completion], **columns)
    return value, verdict.reason


# Verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (r"It is $\boxed{91}$.", (1.0, "passed")),
        (r"\boxed{90}, or \boxed{91 \text{ pens}}", (1.0, "passed")),
        (r"\boxed{91}, or \boxed{90}", (0.0, "wrong_answer")),
        ("It is 91.", (0.0, "no_answer")),
        (r"\boxed{\input{91}}", (0.0, "unparsable")),
    ],
)
def test_math_reward_grades_the_last_box(completion, expected):
    assert grade(math_reward, completion, answer=["91"], question=[PENS]) == expected


def test_attacks_on_the_math_grader_have_no_reward():
    for (question, answer), text in ATTACKS.items():
        boxes = [f"\\boxed{{{attack}}}" for attack in split_answers(text)]
        columns = {"answer": [answer] * len(boxes), "problem": [question] * len(boxes)}
        assert {*math_reward([""] * len(boxes), boxes, **columns)} == {0.0}, question


@pytest.mark.parametrize(
    "answer",
    ["91", 91, np.int64(91), np.str_("91"), "34 + 57 = 91\n#### 91", r"So we have $\boxed{91}$."],
)
def test_an_answer_may_be_a_number_or_the_end_of_a_solution(answer):
    assert math_reward([PENS] * 2, [r"\boxed{91}", r"\boxed{90}"], answer=[answer] * 2) == [1, 0]


@pytest.mark.parametrize("answer", [0.1, math.nan, Decimal(91), True, ["91"]])
def test_an_answer_of_another_type_is_an_error(answer):
    with pytest.raises(ValueError, match=r"math_reward: answer is .* make it text"):
        math_reward([PENS], [""], answer=[answer])


@pytest.mark.parametrize("chat", [False, True])
def test_the_question_decides_the_form_of_the_answer(chat):
    """The question is the row's `problem` or `question`, or else the prompt without system messages."""
    half, decimal = r"\boxed{\frac12}", "Write a half as a decimal."
    system = {"role": "system", "content": "Answers are fractions."}
    prompt = [system, {"role": "user", "content": decimal}] if chat else decimal
    for columns in ({}, {"problem": [None]}, {"question": [decimal]}):
        assert math_reward([prompt], [half], answer=["0.5"], **columns) == [0.0]
    assert math_reward([prompt], [half], answer=["0.5"], problem=["What is a half?"]) == [1.0]


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(
    ("columns", "program"),
    [
        (TEST_COLUMN, RIGHT),
        ({"tests": [tuple(TESTS)]}, RIGHT),
        ({"tests": [np.array(TESTS)]}, RIGHT),
        ({"tests": ["assert f(1) == 2\nassert f(0.1) == 0.2"]}, RIGHT),
        ({name: [value] for name, value in make_hub_row().items()}, DOUBLE),
    ],
)
def test_code_reward_runs_the_tests_of_a_row(columns, program, chat):
    programs = [f"```python\n{program}\n```", program.replace("2", "3")]
    if chat:
        programs = [[{"role": "assistant", "content": text}] for text in programs]
    columns = {name: values * 2 for name, values in columns.items()}
    assert code_reward([""] * 2, programs, **columns) == [1.0, 0.0]


@pytest.mark.parametrize("encode", [json.dumps, list, np.array])
def test_code_reward_takes_rows_of_mbpp_plus(encode):
    inputs = {name: encode(MBPP_PLUS_ROW[name]) for name in ("base_input", "plus_input")}
    columns = {name: [value] for name, value in (MBPP_PLUS_ROW | inputs).items()}
    assert grade(code_reward, DOUBLE, **columns) == (1.0, "passed")
    assert grade(code_reward, DOUBLE.replace("2 *", "2 +"), **columns) == (0.0, "wrong_answer")


def test_tests_compare_values_and_types_of_containers():
    tests = [
        "assert f((1, 2)) == [1, {2: (3,)}]",
        "assert f({1}) is None",
        "assert f('a')",
        "assert not f(-1.5)",
    ]
    right = """
        def f(x):
            return {str: True, float: False, set: None, tuple: [1, {2: (3,)}]}[type(x)]
    """
    assert grade(code_reward, textwrap.dedent(right), tests=[tests]) == (1.0, "passed")
    wrong = right.replace("(3,)", "[3]")
    assert grade(code_reward, textwrap.dedent(wrong), tests=[tests]) == (0.0, "wrong_answer")


HOSTILE = FORGERIES | FORBIDDEN_ACTIONS | OUTPUTS | SOURCES


def test_hostile_programs_have_no_reward():
    """The expected outputs are literals in the row's tests, which do not enter the sandbox."""
    names = [name for name in HOSTILE if name != "an encoding"]
    reward = CodeReward(timeout=2)
    programs = [HOSTILE[name][0] for name in names]
    verdicts = reward.grade([""] * len(names), programs, tests=[TESTS] * len(names))
    for name, verdict in zip(names, verdicts, strict=True):
        assert verdict.reward == 0.0 and verdict.reason in HOSTILE[name][1] | {"timeout"}, name
    assert reward([""], [RIGHT], **TEST_COLUMN) == [1.0]


def test_lean_reward_grades_proofs():
    for label in ("kernel evaluation", "witness"):
        statement, proof = PROOFS[label]
        assert grade(lean_reward, proof, theorem=[statement]) == (1.0, "passed")
    for table in (NOT_PROVED, FORBIDDEN):
        statement, proof = next(iter(table.values()))
        assert lean_reward([""], [proof], formal_statement=[statement], header=[None]) == [0.0]
    chat = [{"role": "assistant", "content": f"```lean4\n{FALSE}  sorry\n```"}]
    assert grade(lean_reward, chat, theorem=[FALSE + "sorry"]) == (0.0, "forbidden")


def test_the_last_message_of_the_assistant_is_graded():
    """If its content is a list of blocks, their text is graded. Messages of tools are not graded."""
    reply = {
        "role": "assistant",
        "content": [{"type": "text", "text": r"\boxed{1}"}, {"type": "x"}],
    }
    tool = {"role": "tool", "content": r"\boxed{2}"}
    tool_call = {"role": "assistant", "content": None}
    completions = [[tool_call, tool, reply], [reply, tool], [reply, tool_call], [tool], []]
    verdicts = math_reward.grade([""] * 5, completions, answer=["1"] * 5)
    no_answer = ["no_answer"] * 3
    assert [verdict.reason for verdict in verdicts] == ["passed", "passed", *no_answer]
    # OpenAI's client returns messages as objects.
    message = SimpleNamespace(role="assistant", content=r"\boxed{1}")
    assert math_reward([""], [[message]], answer=["1"]) == [1.0]


# Completions that are not graded ---------------------------------------------------------------


def test_one_death_of_the_grader_makes_the_reward_none_and_a_second_one_is_an_error(monkeypatch):
    def die(*_):
        raise GraderDied("killed in a test")

    reward = MathReward(timeout=7)
    with monkeypatch.context() as patch:
        patch.setattr(MathGrader, "_compare", die)
        assert reward(["", ""], [r"\boxed{3}", r"\boxed{2}"], answer=["2", "2"]) == [None, 1.0]
        with pytest.raises(GradingFailed, match="killed in a test"):
            reward([""], [r"\boxed{4}"], answer=["2"])


def test_a_missing_sandbox_is_an_error_with_advice(monkeypatch):
    monkeypatch.setattr(sandbox, "LAYERS", ())
    for _ in range(2):
        with pytest.raises(sandbox.SandboxError, match="Install bubblewrap"):
            CodeReward(timeout=3)([""], [RIGHT], **TEST_COLUMN)


def test_rows_without_a_value_are_not_graded():
    columns = {"answer": ["1", None], "tests": [None, TESTS], "theorem": [None, None]}
    completions = [r"\boxed{1}", RIGHT]
    assert math_reward(["", ""], completions, **columns) == [1.0, None]
    assert code_reward(["", ""], completions, **columns) == [None, 1.0]
    assert lean_reward(["", ""], completions, **columns) == [None, None]


BAD_PROBLEMS = [
    (code_reward, {n: [v] for n, v in (MBPP_PLUS_ROW | {"plus_input": "[[2"}).items()}, "Mbpp/0: "),
    (math_reward, {"answer": [" "]}, "empty answer"),
    (math_reward, {"answer": ["1+" * 600]}, "an answer of 1200 characters"),
    (math_reward, {"answer": [rf"\boxed{{{'1+' * 700}}}"]}, "1400 characters; at most 1000"),
    (math_reward, {"answer": ["\ud800"]}, "not text"),
    (code_reward, {"tests": [["assert f('\ud800') == 1"]]}, "surrogates not allowed"),
    (code_reward, {"tests": [["assert f(open('x')) == 1"]]}, "with literals"),
    (code_reward, {"tests": [["assert f(x=1) == 1"]]}, "with literals"),
    (code_reward, {"tests": [["import os"]]}, "with literals"),
    (code_reward, {"tests": [["assert f(1) =="]]}, "invalid syntax"),
    (
        code_reward,
        {"tests": [["assert f(1) == 1", "assert g(1) == 1"]]},
        r"'assert f(1) == 1\nassert g(1) == 1' must all call the same function, but call f, g",
    ),
    (code_reward, {"tests": [[]]}, "call no function"),
    (
        code_reward,
        {n: [v] for n, v in make_hub_row(inputs="").items()},
        "its test program has no inputs",
    ),
    (lean_reward, {"theorem": ["example : 1 = 1 := rfl"]}, "no theorem"),
    (lean_reward, {"theorem": ["theorem a : Undefined := by"]}, "Undefined"),
]


@pytest.mark.parametrize(("reward", "columns", "reason"), BAD_PROBLEMS)
def test_bad_problems_are_logged_once_and_not_graded(reward, columns, reason, caplog):
    columns = {name: values * 2 for name, values in columns.items()}
    verdicts = reward.grade(["", ""], [RIGHT, RIGHT], **columns)
    assert [(v.reward, v.reason) for v in verdicts] == [(None, "bad_problem")] * 2
    [message] = [text for text in caplog.messages if "not graded" in text]
    assert reason in message


def test_many_bad_problems_do_not_flood_the_log(caplog):
    columns = {"answer": [" "] * 100, "problem": [f"question {n}" for n in range(100)]}
    reward = MathReward(timeout=8)
    assert reward([""] * 100, ["x"] * 100, **columns) == [None] * 100
    assert len(caplog.messages) == MAX_LOGGED_PROBLEMS + 1
    message = "completions of more problems are not graded; they are not logged"
    assert caplog.messages[-1] == message


# Arguments -------------------------------------------------------------------------------------


def test_an_empty_batch_has_no_rewards():
    assert math_reward([], [], answer=[]) == []


def test_arguments_that_a_reward_does_not_read_may_be_anything():
    """Trainers pass arguments of their own, and datasets have other columns."""
    columns = {"step": 5, "tools": None, "answer": ["1"], "tests": "x"}
    assert math_reward([""], [r"\boxed{1}"], **columns) == [1.0]


@pytest.mark.parametrize(
    ("completion", "kind"),
    [
        (5, "int"),
        (b"x", "bytes"),
        ({"role": "assistant", "content": "x"}, "dict"),
        (["x"], "list"),
        ([{"role": "assistant", "content": 5}], "list"),
        ([{"role": "assistant", "content": ["x"]}], "list"),
    ],
)
def test_a_completion_of_another_type_is_an_error(completion, kind):
    with pytest.raises(ValueError, match=rf"math_reward: completions is .*, of type {kind}: make"):
        math_reward([""], [completion], answer=["1"])


@pytest.mark.parametrize(
    ("reward", "columns"),
    [
        (math_reward, {"answer": ["1"], "problem": [5]}),
        (code_reward, {"tests": [5]}),
        (code_reward, {"tests": [{"assert f(1) == 2": 1}]}),
        (code_reward, {"tests": [[None]]}),
        (code_reward, {"task_id": [1], "code": [["x"]], "test": ["x"]}),
        (lean_reward, {"theorem": [5]}),
        (lean_reward, {"theorem": [FALSE], "header": [5]}),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_its_column(reward, columns):
    name, values = [*columns.items()][-1 if "code" not in columns else 1]
    message = f"{reward.__name__}: {name} is {values[0]!r}, of type {type(values[0]).__name__}: "
    with pytest.raises(ValueError, match=re.escape(message)):
        reward([""], ["x"], **columns)


@pytest.mark.parametrize(
    ("completions", "answers", "lengths"),
    [
        (["x"], ["1", "2"], "prompts 2, completions 1, answer 2"),
        (["x"] * 2, ["1"], "prompts 2, completions 2, answer 1"),
        (["x"] * 2, ["1"] * 3, "prompts 2, completions 2, answer 3"),
    ],
)
def test_columns_of_different_lengths_are_an_error(completions, answers, lengths):
    with pytest.raises(ValueError, match=f"math_reward: the numbers of values differ: {lengths}"):
        math_reward(["", ""], completions, answer=answers)


def test_a_completion_in_place_of_a_list_is_an_error():
    with pytest.raises(ValueError, match="completions is '12', of type str: make it a list"):
        math_reward(["", ""], "12", answer=["1", "2"])


def test_tests_may_call_a_function_with_the_name_of_a_builtin():
    for name in ("next", "iter", "set", "_outputs", "outputs"):
        tests = [[f"assert {name}(1) == [2]", f"assert {name}(2) == set()"]]
        program = f"def {name}(n): return [2] if n == 1 else {{*()}}"
        assert code_reward(["", ""], [program, RIGHT], tests=tests * 2) == [1.0, 0.0]


@pytest.mark.parametrize("reward", [math_reward, code_reward, lean_reward])
def test_a_missing_column_is_an_error_that_lists_the_columns(reward):
    columns = {"solution": ["1"], "trainer_state": None, "log_extra": print, "completion_ids": [[]]}
    with pytest.raises(ValueError) as raised:
        reward([""], ["x"], **columns)
    message = str(raised.value)
    assert message.startswith(f"{reward.__name__} needs the column '{reward.column_sets[0][0]}'")
    assert "the dataset has 'solution'. Rename one" in message


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout": 0},
        {"timeout": math.nan},
        {"timeout": math.inf},
        {"workers": 0},
        {"workers": 2.5},
        {"workers": 2.0},
        {"timeout": "5"},
    ],
)
def test_settings_out_of_bounds_are_errors(settings):
    with pytest.raises(ValueError, match="up to 86400, and workers to a whole number from 1"):
        MathReward(**settings)


# Trainers --------------------------------------------------------------------------------------


@pytest.fixture
def trainer_arguments(toy_model):
    from datasets import Dataset
    from transformers import AutoTokenizer

    rows = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
    return {
        "model": str(toy_model),
        "reward_funcs": math_reward,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": AutoTokenizer.from_pretrained(toy_model, padding_side="left"),
    }


def test_grpo_trainer_trains_with_a_reward(trainer_arguments, tmp_path, monkeypatch):
    from trl import GRPOConfig, GRPOTrainer

    from tests.training.loops import COMMON, logged_values

    texts = iter([r"\boxed{1}", "?"] * 1000)
    monkeypatch.setattr(
        "trl.trainer.grpo_trainer.GRPOTrainer._calculate_rewards",
        with_completions(GRPOTrainer._calculate_rewards, texts),
    )
    sizes = {"per_device_train_batch_size": 8, "max_steps": 2, "max_completion_length": 6}
    trainer = GRPOTrainer(**trainer_arguments, args=GRPOConfig(str(tmp_path), **COMMON | sizes))
    trainer.train()
    means = logged_values(trainer, "rewards/math_reward/mean")
    assert len(means) == 2 and all(0 <= mean <= 0.5 for mean in means)


def with_completions(calculate, texts):
    """Return a method of TRL that grades these texts instead of an untrained model's completions."""

    def _calculate_rewards(self, inputs, prompts, completions, ids):
        return calculate(self, inputs, prompts, [next(texts) for _ in completions], ids)

    return _calculate_rewards


@pytest.mark.parametrize("workers", [0, 2])
def test_rapid_trainer_trains_with_a_reward(trainer_arguments, tmp_path, workers):
    from rapid import RapidConfig, RapidTrainer
    from tests.training.loops import COMMON, logged_values

    sizes = {"H": 2, "n_step": 8, "max_steps": 2, "max_completion_length": 6}
    args = RapidConfig(str(tmp_path), **COMMON | sizes, grading_workers=workers)
    trainer = RapidTrainer(**trainer_arguments, args=args)
    trainer.train()
    assert logged_values(trainer, "rewards/math_reward/mean") == [0.0]
