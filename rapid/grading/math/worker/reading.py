"""Reads formulas: an answer's LaTeX as a parse tree and as an expression, by the grammar.

math_verify's own `parse` searches a text for a formula, which an answer could bring along, and its
reader of plain expressions ends in `eval`. This one reads an answer whole, and as LaTeX.
"""

import functools
import re
from types import SimpleNamespace

from antlr4 import ParserRuleContext
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from sympy import Basic, MatrixBase

NORMAL = NormalizationConfig(malformed_operators=True, boxed="none")
REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}")
THOUSANDS = re.compile(r"(?<=\d)(?<![_^]\d)(?:\{,\}|,?\\[,;:! ]|[~\s])+(?=\d{3}(?!\d))")
STRAY = re.compile(r"\d\s*_|\\(?:text|mbox)\s*\{[^{}]*\}\s*(?:\d|\(|\\frac)")
NUMBER = re.compile(r"[{(]*[\d.]+[})]*")
MIXED = re.compile(r"\d+\\frac\{\d+\}\{\d+\}")


class Unreadable(ValueError):
    """Not an expression."""


def normalize(text: str) -> str:
    text = REPEATING.sub(lambda decimal: as_fraction(*decimal.groups()), text)
    return normalize_latex(THOUSANDS.sub("", text), NORMAL)


def as_fraction(whole: str, fixed: str, repeating: str) -> str:
    """Return 15/90 for 0.1666..., which is written 0.1\\overline{6}."""
    below = (10 ** len(repeating) - 1) * 10 ** len(fixed)
    above = int(whole + fixed + repeating) - int(whole + fixed or 0)
    return f"\\frac{{{above}}}{{{below}}}"


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> ParserRuleContext | None:
    """Return the parse tree of a normalized formula; None if it is none."""
    if STRAY.search(text):
        return None
    try:
        return _Latex2Sympy().create_parser(text).math()
    except (RecursionError, MemoryError):
        raise
    except Exception:
        return None


class Reader(_Latex2Sympy):
    """Makes an expression of a parse tree, and reads two numbers side by side with care."""

    def create_parser(self, latex_str):
        """Return what has the parse tree already."""
        tree = parse(latex_str)
        if tree is None:
            raise Unreadable(latex_str)
        return SimpleNamespace(math=lambda: tree)

    def convert_postfix_list(self, arr, i=0):
        """Factors without a sign between them. Only 3\\frac{1}{2} is a sum; 2 3 is not even 6."""
        if i + 2 <= len(arr):
            here, after = arr[i].getText(), arr[i + 1].getText()
            if NUMBER.fullmatch(here) and NUMBER.match(after) and after[0] != "(":
                raise Unreadable(f"{here} {after}")
            if NUMBER.fullmatch(here) and not MIXED.fullmatch(here + after):
                number, rest = self.convert_postfix(arr[i]), self.convert_postfix_list(arr, i + 1)
                multiply = self.mat_mul_flat if isinstance(rest, MatrixBase) else self.mul_flat
                return multiply(number, rest)
        return super().convert_postfix_list(arr, i)


@functools.lru_cache(maxsize=4096)
def read(text: str, real: bool, cases: bool) -> Basic | MatrixBase | None:
    """Return a normalized formula as an expression, with nothing evaluated; None if it is none.

    Args:
        real: whether its variables are.
        cases: whether a is not A.
    """
    try:
        config = ConversionConfig(lowercase_symbols=not cases)
        tree = Reader(is_real=real, config=config).parse(text)
    except (RecursionError, MemoryError):
        raise
    except Exception:
        return None
    return tree if isinstance(tree, Basic | MatrixBase) else None
