"""Writes the formulas of a question in other ways, with the same value and without evaluating them.

A completion that boxes such a formula has not answered the question.
"""

import re
from collections.abc import Iterator
from itertools import islice, permutations

FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\[(.+?)\\\]|(\d+/\d+|\d+\.\d+|\d+)", re.DOTALL
)
INTEGER = re.compile(r"(?<![\d.\w\\{])\d+(?![\d.\w])")
PIECE = re.compile(r"[=,;]|\\(?:text|mbox)\{[^{}]*\}|\\(?:[gl]eq?|quad|\\|cdots|ldots)\b|[<>]|\.$")
TEMPLATES = (
    "{f}", "({f})", "{f}+0", "0+{f}", "1\\cdot({f})", "({f})\\cdot 1", "\\frac{{{f}}}{{1}}", "({f})^1", "-(-({f}))",
    "\\frac{{2({f})}}{{2}}", "\\frac12\\cdot2({f})", "x={f}", "{f}={f}", "\\left({f}\\right)", "\\text{{${f}$}}",
    "\\mathbf{{{f}}}", "\\frac{{{f}+{f}}}{{2}}", "{f}+x-x", "\\sqrt{{({f})^2}}", "|{f}|", "\\{{{f}\\}}", "[{f}]",
    "{f}\\approx{f}", "0.5\\cdot2({f})", "1.0({f})", "{f}+0.0", "({f})({f})/({f})", "e^{{\\ln({f})}}", "{f}\\text{{ }}",
    "\\frac{{1}}{{1/({f})}}", "{f}-0", "\\frac{{-({f})}}{{-1}}", "{{{f}}}", "\\frac{{10({f})}}{{10}}", "({f})\\%\\cdot100",
)  # fmt: skip


def respell_numbers(formula: str) -> Iterator[str]:
    """Yield a formula with each of its integers respelt."""
    for match in INTEGER.finditer(formula):
        number = int(match[0])
        for text in (f"{number}.0", f"({number})", f"\\frac{{{2 * number}}}{{2}}", f"({number - 1}+1)",
                     f"\\sqrt{{{number**2}}}", f"--{number}", f"{{{number}}}", f"({2 * number})/2", f"{number}^1"):  # fmt: skip
            yield formula[: match.start()] + text + formula[match.end() :]


def reorder(formula: str) -> Iterator[str]:
    """Yield sums, products of brackets and quotients in other orders, and with changed signs."""
    terms = re.findall(r"[+-]?(?:[^+\-(){}]|\([^()]*\)|\{[^{}]*\})+", formula)
    if len(terms) > 1 and "".join(terms) == formula:
        signed = [term if term[0] in "+-" else "+" + term for term in terms]
        for order in islice(permutations(signed), 6):
            yield "".join(order).removeprefix("+")
        negated = "".join({"+": "-", "-": "+"}[term[0]] + term[1:] for term in signed).removeprefix(
            "+"
        )
        yield f"-({negated})"
        yield f"-1({negated})"
    factors = re.findall(r"\([^()]*\)", formula)
    if len(factors) > 1 and "".join(factors) == formula:
        for order in islice(permutations(factors), 6):
            yield "".join(order)
        yield "".join(f"(-{factor})" for factor in factors[:2]) + "".join(factors[2:])
        yield "\\cdot".join(factors)
    for above, below in re.findall(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", formula):
        for factor in (2, 3, 10):
            fraction = f"\\frac{{{above}}}{{{below}}}"
            yield formula.replace(fraction, f"\\frac{{{factor}({above})}}{{{factor}({below})}}")
            yield formula.replace(fraction, f"({above})/({below})")
            if above.isdecimal() and below.isdecimal():
                yield formula.replace(
                    fraction, f"\\frac{{{factor * int(above)}}}{{{factor * int(below)}}}"
                )


def respell(question: str) -> Iterator[str]:
    """Yield the formulas of a question, and many other spellings of them."""
    for match in FORMULA.finditer(question):
        whole = next(filter(None, match.groups())).strip(" .,;")
        for formula in dict.fromkeys([whole, *map(str.strip, PIECE.split(whole))]):
            if not formula or formula.isdecimal():
                continue
            for inner in dict.fromkeys([formula, *respell_numbers(formula), *reorder(formula)]):
                yield inner
                yield from (template.format(f=inner) for template in TEMPLATES)
