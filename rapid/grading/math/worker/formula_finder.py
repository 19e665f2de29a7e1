"""Finds the formulas in the text of a question, and the parts of a formula that can be parsed."""

import contextlib
import re

from formula import PARSER, Formula, kind, operands, parse_formula
from lark.exceptions import LarkError
from latex import CHARACTERS, Unreadable

# Spellings of a question that are replaced before its formulas are searched: roots without LaTeX,
# the spacing of operators, and braces that enclose neither an argument nor a set.
NORMALIZATIONS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?:√|(?<![\\a-zA-Z])sqrt(?=\()) *(\d+|[a-z](?![a-z])|\([^()]*\))", r"\\sqrt{\1}"),
        (r"\\math(?:bin|rel|op|ord)(?![a-zA-Z]) *", ""),
        (r"\{ *([-+=<>*/]|\\(?:cdot|times|div)(?![a-zA-Z])) *\}", r" \1 "),
        (r"(?:(?<=[(\[+\-*/=<>&|$])|(?<=[(\[+\-*/=<>&|$] ))\{((?:[^{}$]|\{[^{}$]*\})*)\}", r"\1"),
    )
]
# Parts of a formula without LaTeX, such as 2(x+3)-5: an operator (but no slash of m/s or km/h), a
# number or name, a sum in brackets, a root, and a factor. Several letters, as in 3xy(x+2), are
# names only inside brackets or directly before them.
PLAIN_OPERATOR = r" ?(?:[-+*=]|/(?![hs]\b)|\\(?:times|cdot|div)(?![a-zA-Z])) *"
PLAIN_POWER = r"(?:\^\d+)?"
PLAIN_NAME = rf"(?:\d+(?:\.\d+)?[a-z]?|[a-z]){PLAIN_POWER}(?![a-zA-Z\d])"
PLAIN_TERM = rf"(?:\d+(?:\.\d+)?[a-z]{{0,3}}|[a-z]{{1,2}}){PLAIN_POWER}(?![a-zA-Z\d])"
PLAIN_SUM = rf"\({PLAIN_TERM}(?:{PLAIN_OPERATOR}{PLAIN_TERM})+\){PLAIN_POWER}"
PLAIN_NAMES = rf"(?:(?:\d+(?:\.\d+)?)?[a-z]{{0,2}}{PLAIN_POWER})"
PLAIN_ROOT = r"\d*\\sqrt\{[^{}]*\}"
PLAIN_FACTOR = rf"(?:{PLAIN_NAMES}(?:{PLAIN_SUM}|\([a-z]\))+|{PLAIN_NAME}|{PLAIN_ROOT})"
# A formula in a question: in dollar signs, \[ \], \( \) or an environment such as align, or an
# operation, a root or a decimal outside of them.
QUESTION_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)"
    r"|(\\begin\{(?:align|gather)\*?\}.+?\\end\{(?:align|gather)\*?\})"
    r"|\\begin\{(?:equation|multline)\*?\}(.+?)\\end\{"
    rf"|(?<![\w\\$.])(-?{PLAIN_FACTOR}(?:{PLAIN_OPERATOR}{PLAIN_FACTOR})+"
    rf"|-?{PLAIN_NAMES}{PLAIN_SUM}+|-?{PLAIN_ROOT})|(\d*\.\d+)",
    re.DOTALL,
)
# The ends of an environment whose rows `clean_latex` could not make a list.
ENVIRONMENT_END = re.compile(r"\\(?:begin|end)\{(?:align|gather)\*?\}")
# Where a part of a formula may begin: not within a command, a word or a number.
SYMBOL = re.compile(r"\\[a-zA-Z]+|\\.|\"[a-z]+\"|\d+(?:\.\d+)?|\S", re.DOTALL)

# How many tokens are read to parse parts of one formula. Parts of nested brackets are read again
# and again.
MAX_TOKENS = 5000


def normalize_question(question: str) -> str:
    """Return a question in the spelling in which its formulas are searched."""
    for pattern, replacement in NORMALIZATIONS:
        question = pattern.sub(replacement, question)
    return "".join(CHARACTERS.get(character, character) for character in question)


def parse_parts(text: str, functions: frozenset[str]) -> list[Formula]:
    """Parse the longest parts of a formula that can be parsed, from left to right.

    A relation is returned as its sides, because one of them may go on beyond the part. After
    MAX_TOKENS tokens, the rest of the formula is not read.

    Args:
        text: a formula that cannot be parsed as a whole, from `clean_latex`.
        functions: the letters of names that are functions before brackets.
    """
    parts: list[Formula] = []
    end = token_count = 0
    for symbol in SYMBOL.finditer(text):
        if symbol.start() < end:
            continue
        ends, count = find_ends(text, symbol.start(), MAX_TOKENS - token_count)
        token_count += count
        for part_end in reversed(ends):
            # An attempt reads about as many tokens as were read to find the ends.
            token_count += count
            with contextlib.suppress(Unreadable):
                part = parse_formula(text[symbol.start() : part_end], functions)
                parts += operands(part) if kind(part) in ("chain", "list") else [part]
                end = part_end
                break
            if token_count >= MAX_TOKENS:
                break
        if token_count >= MAX_TOKENS:
            break
    return parts


def find_ends(text: str, start: int, max_tokens: int) -> tuple[list[int], int]:
    """Return where a formula that begins at `start` may end, and how many tokens were read.

    It may end after some of its symbols, in increasing order, but not inside brackets.
    """
    parser = PARSER.parse_interactive(text[start:])
    ends, end, depth, count = [], start, 0, 0
    with contextlib.suppress(LarkError):
        for token in parser.iter_parse():  # the parser reads a token after it is yielded
            if depth == 0 and "$END" in parser.choices():
                ends.append(end)
            end = start + token.end_pos
            depth += sum(map(token.count, "([{")) - sum(map(token.count, ")]}"))
            count += 1
            if count >= max_tokens:
                return ends, count
    return ends + [end] * (depth == 0 and end > start), count
