"""Reads a question: the form and the number base that it asks for, and the formulas in it."""

import contextlib
import functools
import re

from formula import (
    FUNCTION_NAMES,
    Formula,
    parse_formula,
    tokens,
    value,
)
from formula_finder import ENVIRONMENT_END, QUESTION_FORMULA, normalize_question, parse_parts
from lark import Tree
from latex import Unreadable, clean_latex

# Code that draws a figure, and a label of the figure in the code.
DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
FIGURE_LABEL = re.compile(r'label\(\s*(?:rotate\([^()]*\)\s*\*\s*)?"([^"]*)"')
# The sign before an amount of money, as in "costs $5". It opens no formula: the next sign is
# missing, stands before another number, or follows words and a space.
MONEY_SIGN = re.compile(
    r"(?<![\\$])\$(?=\.?\d(?:(?:\\.|[^\\$])*(?:\Z|\$\.?\d)|[^\\$]*\s[a-z]{3,}\b[^\\$]*(?<=[\s(])\$))"
)
# The letter of an option, as in (A) Line or A. Line, and what ends the option's text.
OPTION_LETTER = re.compile(
    r"(?:\\[a-z]+ *\{ *)?(?<!\w)\(([A-F])\) *\}?|(?:^|\$ )([A-F])\. ", re.MULTILINE
)
OPTION_END = re.compile(r"\n|\\q?quad|\\\]")
# Verbs that ask for a value, and verbs that say how to write it.
FINDING_VERBS = "find|compute|determine|calculate|evaluate"
WRITING_VERBS = "express|write|give|enter"
# Words with which a question asks for a shape of the answer (`forms.shape`), for its simplest form,
# for the formula that follows, and for a rounded value.
SHAPE_WORDS = re.compile(
    r"\bfactor (?:the|each|completely|over|into|\$|\\\()|factored|\bexpand\b|expanded|mixed number"
    r"|common fraction|\b(?:as|into|to) (?:an? )?(?:\w+ )?(?:fraction|decimal|percent)|decimal form"
    r"|(?:decimal|scientific) notation|prime factorization|complet\w+ the square"
    r"|as a power of|(?<!be )\b(?:express|write)\b[^.?]* as (?:a|the) product of"
    r"|(?:vertex|intercept|standard|slope) form|single fraction"
    rf"|(?<!be )\b(?:{WRITING_VERBS}|put|leave|find)\b[^.?]*"
    r"\bin (?:the )?(?:[\w-]+ ){0,4}form\b"
)
SIMPLEST_FORM_WORDS = re.compile(r"simpl|lowest terms|reduced|rationali[sz]e|common fraction")
REQUEST_WORDS = re.compile(
    rf"(?i)\b(?:{FINDING_VERBS}|simplify|what (?:is|are)|values? of|solve for)\b"
)
# Words of a sentence that asks, and those of one that asks or says how to write the answer.
ASKING_WORDS = re.compile(rf"(?i)\b(?:what|how|{FINDING_VERBS}|convert|simplify|solve)\b")
QUESTION_WORDS = re.compile(
    rf"{ASKING_WORDS.pattern}|\b(?:which|{WRITING_VERBS}|answers? (?:as|in))\b"
)
ROUNDING_WORDS = re.compile(
    r"(?i)\bto the nearest\b|\bnearest (?:integer|whole|ten|hundred|thousand|cent|percent|degree)"
    r"|\bround(?:ed)? (?:your|the answer|each|to|off|up|down)\b|\bdecimal places?\b"
    r"|\bsignificant (?:dig|fig)"
    rf"|\b(?:what|how|{FINDING_VERBS}|answer)\b[^.?!]*\bapproximat"
)
# A name in bold or with an arrow, and a single capital.
VECTOR = re.compile(
    r"\\(?:mathbf|boldsymbol|bm|vec|overrightarrow) *\{? *([a-zA-Z]) *\}?(?![a-zA-Z])"
)
CAPITAL = re.compile(r"(?<![a-zA-Z\\])[A-Z](?![a-zA-Z])")
BASE_WORDS = "two three four five six seven eight nine ten eleven twelve"
BASE_REQUEST = re.compile(
    r"\b(?:in|to|into|as|find|what is|express|write|give)(?: an?| the)? base[- ]\$?(\w+)"
)
# A base of a number that is given, as in "is written 21 in base 7". But "write 21 in base 7" asks.
GIVEN_BASE = re.compile(
    r"(?<!what is )(?<!\bfind )(?<!\bexpress )(?<!\bwrite )(?<!\bgive )(?<!\bvalue of )"
    r"(?<!\S)\$?\d+\$? in base[- ]\$?\w+"
)
BASES = {word: base for base, word in enumerate(BASE_WORDS.split(" "), 2)}


def clean_question(question: str) -> str:
    """Return a question with a figure's labels in place of its code, and with \\$5 for $5."""
    question = DRAWING.sub(lambda code: " ".join(FIGURE_LABEL.findall(code[0])), question)
    return MONEY_SIGN.sub(r"\\$", question)


def find_asked_forms(question: str) -> set[str]:
    """Return which forms a question asks for.

    The set contains "shape" if it asks for a certain shape, such as a fraction or a factored
    polynomial, and "simplest" if it asks for the simplest form.
    """
    patterns = {"shape": SHAPE_WORDS, "simplest": SIMPLEST_FORM_WORDS}
    return {form for form in patterns if patterns[form].search(question.lower())}


def find_options(question: str) -> dict[str, str]:
    """Return the options of a multiple choice question by letter, as LaTeX from `clean_latex`."""
    letters = [*OPTION_LETTER.finditer(question)]
    ends = [*(letter.start() for letter in letters[1:]), len(question)]
    options = {}
    for letter, end in zip(letters, ends, strict=False):
        text = OPTION_END.split(question[letter.end() : end])[0]
        with contextlib.suppress(Unreadable):
            options[letter[1] or letter[2]] = clean_latex(text)
    return options


def split_sentences(question: str) -> list[str]:
    """Return the sentences of a question."""
    return re.split(r"(?<=[\w)}\]$])[.?!]\$*(?:\\[)\]])?\s", question.strip())


def find_request(question: str) -> str:
    """Return the last sentence that asks something, with the sentences after it."""
    sentences = split_sentences(question)
    starts = [index for index, text in enumerate(sentences) if ASKING_WORDS.search(text)]
    return "\n".join(sentences[starts[-1] if starts else -1 :])


def parse_base(text: str) -> int:
    """Return the base that digits or a word such as "two" name; 0 for other text."""
    return int(text) if text.isdecimal() else BASES.get(text, 0)


def find_asked_base(question: str) -> int:
    """Return the base of the number that a question asks for, as in "in base 7"; else 10."""
    if "how many" in question.lower():  # the answer is a count, whatever bases are mentioned
        return 10
    request = find_request(question).lower()
    mentions = [*BASE_REQUEST.finditer(request)]
    given_ends = {given.end() for given in GIVEN_BASE.finditer(request)}
    if mentions and mentions[-1].end() in given_ends:
        mentions += [
            mention
            for mention in mentions
            if mention.end() not in given_ends and mention[0].startswith(("in", "to"))
        ]
    bases = (parse_base(mention[1]) for mention in reversed(mentions))
    return next(filter(None, bases), 10)


@functools.lru_cache(maxsize=256)
def read_formula_texts(question: str) -> list[tuple[str, bool]]:
    """Return the formulas of a question, from `clean_latex`, and whether it asks for each.

    It asks for a formula if a word of REQUEST_WORDS stands between the previous formula and this.
    """
    question = normalize_question(question)
    formula_texts, end = [], 0
    for match in QUESTION_FORMULA.finditer(question):
        is_asked_for = bool(REQUEST_WORDS.search(question[end : match.start()]))
        with contextlib.suppress(Unreadable):
            text = clean_latex(next(filter(None, match.groups())))
            formula_texts.append((ENVIRONMENT_END.sub("", text), is_asked_for))
        end = match.end()
    return formula_texts


def find_asked_formulas(question: str) -> list[str]:
    """Return the formulas that a question asks for: those after "find", "compute", "what is"."""
    return [text for text, is_asked_for in read_formula_texts(question) if is_asked_for]


@functools.lru_cache(maxsize=256)
def read_formulas(question: str, functions: frozenset[str] = FUNCTION_NAMES) -> list[Formula]:
    """Return the formulas of a question as trees.

    If a formula cannot be parsed as a whole, the parts of it that can be parsed are returned.

    Args:
        functions: the letters of names that are functions before brackets.
    """
    trees = []
    for text, _ in read_formula_texts(question):
        text = text.strip(" .,;:?")
        try:
            trees.append(parse_formula(text, functions))
        except Unreadable:
            trees += parse_parts(text, functions)
    return trees


@functools.lru_cache(maxsize=256)
def list_expressions(question: str, functions: frozenset[str]) -> list[Formula]:
    """Return all formulas and parts of formulas in a question that have a value.

    Args:
        functions: the letters of names that are functions before brackets.
    """
    expressions = []
    for formula in read_formulas(question, functions):
        subtrees = formula.iter_subtrees() if isinstance(formula, Tree) else []
        expressions += [part for part in (*subtrees, *tokens(formula)) if has_value(part)]
    return list(dict.fromkeys(expressions))


def find_vectors(question: str) -> set[str]:
    """Return the names of vectors and matrices in a question.

    They are in bold or have an arrow. In a question about matrices they may also be capitals.
    """
    capitals = CAPITAL.findall(question) if "matri" in question.lower() else []
    return {*VECTOR.findall(question), *capitals}


def has_value(formula: Formula) -> bool:
    """Return whether a formula has a value. A relation such as x = 1 has none."""
    try:
        return value(formula) is not None
    except Unreadable:
        return False
