"""Prompts: a template for each benchmark, with a form for base models and one for chat models."""

from pathlib import Path
from random import Random

import pytest

from rapid.benchmarks import BENCHMARKS, prompts
from rapid.benchmarks.base import PROMPT
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.benchmarks.prompts import BadTemplate, check_templates, render_prompt

PROBLEMS = {
    "mbpp_plus": CodeProblem(
        task_id="Mbpp/0",
        prompt='"""\nWrite a function to double a number.\nassert double(2) == 4\n"""\n',
        entry_point="double",
        canonical_solution="def double(n):\n    return 2 * n\n",
        base_input=[[2]],
        plus_input=[[77]],
    ),
    "math": MathProblem(
        unique_id="q", problem="What is $1/2+1/4$?", answer="ANSWER", solution="SOLUTION"
    ),
    "minif2f": LeanProblem(
        name="double",
        header="open Nat\n\n",
        informal_prefix="/-- Twice a number is even. -/\n",
        formal_statement="theorem double (n : Nat) : 2 * n % 2 = 0 := by\n",
    ),
}


def get_problem(name):
    """Return a problem of any benchmark: one of `PROBLEMS`, or a generated one."""
    return PROBLEMS.get(name) or BENCHMARKS[name].draw(Random(0), "made").problem


@pytest.mark.parametrize(
    "name", [name for name, benchmark in BENCHMARKS.items() if name in PROBLEMS or benchmark.draw]
)
@pytest.mark.parametrize("chat", [False, True])
def test_a_prompt_ends_with_one_line_break_and_has_no_template_syntax(name, chat):
    prompt = render_prompt(name, get_problem(name), chat)
    assert prompt.endswith("\n") and not prompt.endswith("\n\n")
    assert "{{" not in prompt and "{%" not in prompt and "{#" not in prompt


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(
    "name, secret",
    [("mbpp_plus", "return 2 * n"), ("mbpp_plus", "77"), ("math", "ANSWER"), ("math", "SOLUTION")],
)
def test_a_prompt_does_not_contain_the_answer(name, secret, chat):
    assert secret not in render_prompt(name, PROBLEMS[name], chat)


@pytest.mark.parametrize(
    "name, answer_format",
    [("mbpp_plus", "```python"), ("math", r"\boxed{}"), ("minif2f", "```lean")],
)
def test_a_chat_prompt_names_the_format_of_the_answer(name, answer_format):
    assert answer_format in render_prompt(name, PROBLEMS[name], chat=True)


def test_prompts_of_base_models_are_the_published_ones_or_ask_for_a_box():
    theorem = PROBLEMS["minif2f"]
    assert {name: render_prompt(name, problem) for name, problem in PROBLEMS.items()} == {
        "mbpp_plus": PROBLEMS["mbpp_plus"].prompt,
        "math": "Problem: What is $1/2+1/4$?\nSolution, ending in \\boxed{}:\n",
        "minif2f": theorem.header + theorem.informal_prefix + theorem.formal_statement,
    }


@pytest.mark.parametrize("ending", ["", "\n", "\n  "])
def test_a_prompt_of_minif2f_ends_with_by_and_one_line_break(ending):
    problem = PROBLEMS["minif2f"]
    statement = problem.formal_statement.strip() + ending
    prompt = render_prompt("minif2f", problem.model_copy(update={"formal_statement": statement}))
    assert prompt.endswith(":= by\n")


def test_the_text_of_a_problem_is_not_rendered_as_a_template():
    problem = PROBLEMS["math"].model_copy(update={"problem": "{{ answer }} {% raw %} <b>"})
    assert "{{ answer }} {% raw %} <b>" in render_prompt("math", problem)


def test_a_field_that_a_problem_lacks_is_an_error():
    with pytest.raises(BadTemplate, match=r"math/prompt.txt.j2:7: 'problem' is undefined"):
        render_prompt("math", PROBLEMS["minif2f"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% if chat %}\n{{ problem }\n{% endif %}\n", "2: unexpected '}'"),
        (
            "{{ problem }}\n{{ question }}\n",
            "2: 'question' is undefined. A template may use chat, ",
        ),
        ("{% if chat %}\n{{ problem.text.x }}\n{% endif %}\n", "2: 'str object' has no attribute"),
        ("{{ problem | shout }}\n", "1: No filter named 'shout'"),
        ("{{ 1 / 0 }}\n", "1: division by zero"),
        (None, "1: 'math/prompt.txt.j2' not found"),
    ],
)
def test_the_check_of_templates_names_the_line_of_an_error(monkeypatch, tmp_path, text, message):
    (tmp_path / "math").mkdir()
    if text is not None:
        (tmp_path / "math" / PROMPT).write_text(text, encoding="utf-8")
    monkeypatch.setattr(prompts, "FOLDER", tmp_path)
    prompts._load_template.cache_clear()
    with pytest.raises(BadTemplate) as error:
        check_templates(["math"])
    prompts._load_template.cache_clear()
    assert f"math/{PROMPT}:{message}" in str(error.value)


def test_the_templates_of_all_benchmarks_are_valid():
    check_templates(BENCHMARKS)


def test_every_benchmark_has_a_folder_of_its_name_with_a_template():
    folder = Path(prompts.__file__).parent
    assert {path.parent.name for path in folder.glob("*/prompt.txt.j2")} == BENCHMARKS.keys()
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name == type(benchmark).__module__.split(".")[2]
