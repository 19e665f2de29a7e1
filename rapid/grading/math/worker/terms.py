"""Formulas as they are written, with nothing evaluated: what a parse tree spells."""

import functools
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from antlr4 import ParserRuleContext
from antlr4.tree.Tree import TerminalNode
from reading import parse

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+")
CONSTANTS = {"\\pi", "π", "e", "i", "\\infty"}
DIVISION = ("/", "÷", "∕", "\\over", "\\div", ":")
EQUALITY = ("=", "\\in", "∈")


class Term(NamedTuple):
    """A formula as it is written. Sums and products are flat and sorted; parentheses are gone."""

    kind: str
    parts: tuple = ()


@functools.lru_cache(maxsize=4096)
def written(text: str) -> Term | None:
    """Return a normalized formula as a term; None if it is none."""
    if NUMBER.fullmatch(text.removeprefix("-")):  # the grammar takes 45,045 for a list
        return minus(atom(text[1:])) if text[0] == "-" else atom(text)
    tree = parse(text)
    return tree and term(tree)


def term(tree: ParserRuleContext | TerminalNode) -> Term:
    """Return the term that a parse tree spells."""
    while not isinstance(tree, TerminalNode) and tree.getChildCount() == 1:
        tree = tree.getChild(0)
    if isinstance(tree, TerminalNode):
        return atom(tree.getText())
    inner = [child for child in tree.children if not isinstance(child, TerminalNode)]
    tokens = [child.getText() for child in tree.children if isinstance(child, TerminalNode)]
    rule = type(tree).__name__.removesuffix("Context").removesuffix("_nofunc").lower()
    if rule == "atom_expr":  # a letter, its index, its exponent
        return indexed(tokens[0], inner)
    if rule == "postfix":
        return Term("".join(op.getText() for op in inner[1:]), (term(inner[0]),))
    parts = [term(child) for child in inner]
    match rule, tokens:
        case "func", ["\\sqrt", *_]:
            index = [part for part in parts[:-1] if part != number(2)]
            return Term("root", (parts[-1], *index))
        case "func", [("e" | "\\exponentialE"), *_]:
            return Term("^", (atom("e"), parts[0]))
        case "func", _ if tree.getChild(0).getText() == "\\exp":
            return Term("^", (atom("e"), parts[-1]))
        case "func", _:
            name = tree.getChild(0).getText().replace("\\ln", "\\log")
            return Term(name, tuple(parts if tokens and tokens[0] == name else parts[1:]))
        case "additive", [sign]:
            return join("+", parts[0], minus(parts[1]) if sign in "-−∸" else parts[1])
        case "plus_minus_expr", _:
            return Term("±", (join("+", *parts),))
        case "unary", [sign]:
            return minus(parts[0]) if sign in "-−∸" else parts[0]
        case "unary", []:
            is_mixed = len(parts) == 2 and is_integer(parts[0]) and is_fraction(parts[1])
            return Term("mixed", tuple(parts)) if is_mixed else join("*", *parts)
        case "mp", [sign] if sign not in DIVISION:
            return Term("mod", tuple(parts)) if "mod" in sign else join("*", *parts)
        case (("mp" | "frac"), _):
            return Term("/", tuple(parts))
        case "exp", _:
            return Term("^", tuple(parts[:2]))
        case (("relation" | "set_relation" | "set_elements_relation"), [sign]) if sign in EQUALITY:
            return Term("=", tuple(parts))
        case (("group" | "ordered_tuple" | "math" | "supexpr"), _) if len(parts) == 1:
            return parts[0]
        case "binom" | "abs_group" | "floor_group" | "ceil_group" | "norm_group", _:
            return Term(rule, tuple(parts))  # whichever commands write it
    return Term(rule + "".join(tokens), tuple(parts))


def atom(text: str) -> Term:
    """Return a number or a name; \\text{A} is the name a."""
    text = text.strip()
    if NUMBER.fullmatch(text):
        return Term("number", (value(text), "." in text))
    if text[0] in "0123456789.":
        return Term(text.lstrip("0123456789.,")[:1], ())  # 9.1E1, and 5\% within an answer
    return Term("name", (re.sub(r"\\(text|mbox|mathrm)[a-z]*|[{}() ]", "", text).lower(),))


def indexed(letter: str, inner: list[ParserRuleContext]) -> Term:
    """Return a letter with its index as a name, to the power of what stands above it."""
    below = [child.getText() for child in inner if "Sub" in type(child).__name__]
    above = [term(child) for child in inner if "Sup" in type(child).__name__]
    name = atom(letter.strip() + "".join(below))
    return Term("^", (name, *above)) if above else name


def value(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))


def number(integer: int) -> Term:
    return Term("number", (Fraction(integer), False))


def minus(part: Term) -> Term:
    return Term("-", (part,))


def join(kind: str, *parts: Term) -> Term:
    """Return a sum or a product of terms, whose own sums or products are opened."""
    opened = [p for part in parts for p in (part.parts if part.kind == kind else [part])]
    return Term(kind, tuple(sorted(opened, key=repr))) if len(opened) > 1 else opened[0]


def is_integer(part: Term) -> bool:
    return part.kind == "number" and not part.parts[1]


def is_fraction(part: Term) -> bool:
    return part.kind == "/" and all(map(is_integer, part.parts))


def subterms(whole: Term) -> Iterator[Term]:
    """Yield a term and all the terms within it."""
    yield whole
    for part in whole.parts:
        if isinstance(part, Term):
            yield from subterms(part)


def letters(whole: Term) -> set[str]:
    return {part.parts[0] for part in subterms(whole) if part.kind == "name"}


def is_constant(part: Term) -> bool:
    return letters(part) <= CONSTANTS
