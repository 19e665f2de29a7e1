"""Renders prompts: one template per benchmark, with a form for chat models and one for base models.

A template's variables are the fields of the problem, and `chat`, which selects the form. A prompt
asks for completions in the form that the benchmark's grader reads.
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
    """A template cannot be rendered. The message has the file, the line and the error."""


def render_prompt(
    benchmark: str, problem: Problem, chat: bool = False, template: str = PROMPT
) -> str:
    """Return the prompt of a problem.

    Args:
        chat: whether the prompt is a message to a chat model. Otherwise it is a text that a base
            model continues.
        template: name of the template in the benchmark's folder.

    Raises:
        BadTemplate: the template has an error, or uses a variable that does not exist.
    """
    fields = {name: getattr(problem, name) for name in type(problem).model_fields}
    path = f"{benchmark}/{template}"
    try:
        return _load_template(path).render(**fields, chat=chat)
    except Exception as error:  # a template is code: any exception is possible
        line = _find_line(error, template)
        names = f"A template may use chat, {', '.join(fields)}"
        raise BadTemplate(f"{os.path.relpath(FOLDER / path)}:{line}: {error}. {names}") from None


def render_prompt_and_message(benchmark: str, problem: Problem) -> dict[str, str]:
    """Return the two forms of a problem's prompt: the text for a base model, the chat message.

    The keys are fields of `rapid.artifacts.demonstrations.Demonstration`.
    """
    return {
        "prompt": render_prompt(benchmark, problem, chat=False),
        "message": render_prompt(benchmark, problem, chat=True),
    }


def check_templates(benchmarks: Iterable[str]) -> None:
    """Render the templates of these benchmarks with a generated problem, to find errors early.

    Benchmarks for which no problems can be generated are skipped.

    Raises:
        BadTemplate: a template cannot be rendered.
    """
    for name in benchmarks:
        benchmark = BENCHMARKS[name]
        if benchmark.draw:
            problem_id = "template"
            problem = benchmark.draw(Random(0), problem_id).problem
            for template in (PROMPT, benchmark.pretrain_template):
                for chat in (False, True):
                    render_prompt(name, problem, chat, template)


def _find_line(error: Exception, template: str) -> int:
    """Return the line of a template at which an error occurred; 1 if it is unknown."""
    if isinstance(error, TemplateSyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith(template)]
    return (lines[-1] or 1) if lines else 1


def read_context_length(model: Path, tokenizer) -> int:
    """Return how many tokens a prompt and its completion may have; 0 if the config does not say it.

    Args:
        model: the folder of a model.
        tokenizer: the model's tokenizer, which may have a lower limit.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model, trust_remote_code=False).get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or 0
    return min(positions, tokenizer.model_max_length)


def tokenize_prompt(tokenizer, prompt: str, chat: bool) -> list[int]:
    """Return the token ids of a prompt: the same ids as TRL computes.

    Args:
        chat: whether the prompt is a user's message, to be put into the tokenizer's chat template.
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
