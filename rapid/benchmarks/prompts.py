"""Renders prompts: one template per benchmark, with a form for chat and one for base models.

A template's variables are the fields of the benchmark's problem, and `chat`. It asks for the form
of completion that the benchmark's grader reads.
"""

import os
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, TemplateSyntaxError

from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import PROMPT, Problem

FOLDER = Path(__file__).parent


class BadTemplate(BadInput):
    """A template cannot be rendered. The message says where, and what is wrong."""


def render_prompt(
    benchmark: str, problem: Problem, chat: bool = False, template: str = PROMPT
) -> str:
    """Return the prompt of a problem.

    Args:
        chat: render a message to a chat model; otherwise a text that a base model continues.
        template: name of the template in the benchmark's folder.

    Raises:
        BadTemplate: the template is broken, or names what the problem does not have.
    """
    fields = {name: getattr(problem, name) for name in type(problem).model_fields}
    path = f"{benchmark}/{template}"
    try:
        return _load_template(path).render(**fields, chat=chat)
    except Exception as error:  # of any kind: a template is code
        line = _find_line(error, template)
        names = f"A template may use chat, {', '.join(fields)}"
        raise BadTemplate(f"{os.path.relpath(FOLDER / path)}:{line}: {error}. {names}") from None


def render_forms(benchmark: str, problem: Problem) -> dict[str, str]:
    """Return a problem as a text to continue, and as a message to a chat model.

    The keys are those of a `Demonstration`.
    """
    return {
        "prompt": render_prompt(benchmark, problem, chat=False),
        "message": render_prompt(benchmark, problem, chat=True),
    }


def check_templates(benchmarks: Iterable[str]) -> None:
    """Render all templates of the benchmarks that have made problems, to find errors.

    Raises:
        BadTemplate: one of them is broken.
    """
    for name in benchmarks:
        benchmark = BENCHMARKS[name]
        if benchmark.draw:
            problem = benchmark.draw(Random(0), "template").problem
            for template in (PROMPT, benchmark.lesson_template):
                for chat in (False, True):
                    render_prompt(name, problem, chat, template)


def _find_line(error: Exception, template: str) -> int:
    """Return the line of a template that an error is in."""
    if isinstance(error, TemplateSyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith(template)]
    return lines[-1] or 1 if lines else 1


def tokenize_prompt(tokenizer, prompt: str, chat: bool) -> list[int]:
    """Return the tokens of a prompt, the same as TRL's.

    Args:
        chat: the prompt is a user's message, which goes into the tokenizer's chat template.
    """
    if not chat:
        return tokenizer(prompt)["input_ids"]
    messages = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@cache
def _load_template(path: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(path)
