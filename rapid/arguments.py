"""A command-line parser that suggests the closest option or choice, and types for its options."""

import argparse
import re
import textwrap

from rapid.text import suggest_name, wrap_text

# The message of argparse for an unknown command or choice: what the user wrote, and the choices.
INVALID_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps help between words, so that no path or option is cut."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap_text(" ".join(text.split()), width, indent="", may_split=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent("\n".join(self._split_lines(text, width - len(indent))), indent)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors suggest the closest option, command or other choice."""

    def __init__(self, **options):
        super().__init__(**{"formatter_class": _HelpFormatter} | options)

    def parse_known_args(self, args=None, namespace=None):
        """Parse arguments; exit with status 2 and a suggestion if an option is unknown."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [name for name in self._option_string_actions if name.startswith("--")]
            suggestion = suggest_name(unknown[0].partition("=")[0], options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion}")
        return namespace, unknown

    def error(self, message: str):
        """Print the usage and the message, and exit with status 2."""
        if match := INVALID_CHOICE.search(message):
            message += suggest_name(match[1], re.findall(r"[\w.-]+", match[2]))
        super().error(message)


def build_positive_type(kind: type):
    """Return a converter for argparse that parses a finite number above 0 of type `kind`."""

    def parse_number(text: str):
        if not 0 < (value := kind(text)) < float("inf"):
            raise ValueError
        return value

    parse_number.__name__ = f"positive {kind.__name__}"  # argparse's error messages have this name
    return parse_number
