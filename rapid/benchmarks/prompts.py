"""The prompts: one template a benchmark, with a form for chat models and one for base models.

A template's variables are the fields of the benchmark's problem, and `chat`. Each asks for the form
of completion that the benchmark's grader reads.
"""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rapid.benchmarks.base import Problem


def render(benchmark: str, problem: Problem, chat: bool = False) -> str:
    """Return the prompt of a problem.

    Args:
        chat: what a user says to a chat model; otherwise the text that a base model continues.
    """
    fields = {name: getattr(problem, name) for name in type(problem).model_fields}
    return _template(benchmark).render(**fields, chat=chat)


def prompt_ids(tokenizer, prompt: str, chat: bool) -> list[int]:
    """Return the tokens of a prompt, as TRL makes them of the same prompt.

    Args:
        chat: the prompt is what a user says, and goes into the tokenizer's chat template.
    """
    if not chat:
        return tokenizer(prompt)["input_ids"]
    said = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@cache
def _template(benchmark: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{benchmark}/prompt.txt.j2")
