"""Parsers of command lines: an unknown name is refused with the one that was meant."""

import argparse
import re
from textwrap import indent as indented

from rapid.text import suggest, wrap

CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")


class _Help(argparse.HelpFormatter):
    """Wraps help between words: a path or an option is never cut."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, indent="", may_split=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return indented("\n".join(self._split_lines(text, width - len(indent))), indent)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says which option, command or other choice may have been meant."""

    def __init__(self, **options):
        super().__init__(**{"formatter_class": _Help} | options)

    def parse_known_args(self, args=None, namespace=None):
        """Parse arguments; end with status 2 where an option of this parser is unknown."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            names = [name for name in self._option_string_actions if name.startswith("--")]
            meant = suggest(unknown[0].partition("=")[0], names)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return namespace, unknown

    def error(self, message: str):
        """Print the usage and the message, and end with status 2."""
        if choice := CHOICE.search(message):
            message += suggest(choice[1], re.findall(r"[\w.-]+", choice[2]))
        super().error(message)
