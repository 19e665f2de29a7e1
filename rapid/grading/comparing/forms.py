"""What an answer leaves to be worked out: 34+57 equals 91, and answers nothing.

An answer is judged as it is written, by its parse tree, before anything evaluates it. Every answer
may have these forms:

- integers, decimals, mixed numbers, fractions of integers, reduced or not. A fraction whose value
  is an integer is a division that was left undone;
- polynomials, factored or expanded, without like terms and with one number in each product;
- lists, sets, intervals and matrices of these, and equations whose right side is one of these.

`work` names what goes beyond: roots, powers of numbers, factorials, functions, sums of constants,
the letters that occur, and so on. An answer may hold only what the known answer holds as well.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import gcd, lcm, prod
from typing import NamedTuple

from antlr4 import ParserRuleContext
from antlr4.tree.Tree import TerminalNode
from reading import Unreadable, normalize, parse
from sympy import Rational, root

NUMBER = re.compile(r"\d[\d,]*\.?\d*|\.\d+")
CONSTANTS = {"\\pi", "π", "e", "i", "\\infty"}
SETS = re.compile(r"\\mathbb|\\emptyset|[∅ℕℤℚℝℂ]")
EQUALITY = ("=", "\\in", "∈")
# Rules of the grammar, and kinds of ours, that hold answers and are no work themselves.
HOLDERS = re.compile(
    "number|name|=|±|math|interval|ordered_tuple|finite_set|(comma|semicolon)_elements|matrix"
    "|subexpr|(minus|union|intersection)_expr|set_group|set_relation|relation|atom_expr_list"
)


class Term(NamedTuple):
    """A formula as it is written. Sums and products are flat and sorted; parentheses are gone."""

    kind: str
    parts: tuple = ()


# --- From the parse tree to a term ---


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
            return Term("root", (parts[-1], parts[0] if len(parts) > 1 else number(2)))
        case "func", [("e" | "\\exponentialE"), *_]:
            return Term("^", (atom("e"), parts[0]))
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
            return mixed(*parts) if is_mixed(*parts) else join("*", *parts)
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


DIVISION = ("/", "÷", "∕", "\\over", "\\div", ":")


def atom(text: str) -> Term:
    text = text.strip()
    if NUMBER.fullmatch(text):
        return number(text.replace(",", ""), "." in text)
    if text[0] in "0123456789.":
        return Term(text.lstrip("0123456789.,")[:1], ())  # 9.1E1, and 5\% within an answer
    return Term("name", (re.sub(r"\\(text|mbox|mathrm)[a-z]*|[{}() ]", "", text).lower(),))


def indexed(letter: str, inner: list[ParserRuleContext]) -> Term:
    below = [child.getText() for child in inner if "Sub" in type(child).__name__]
    above = [term(child) for child in inner if "Sup" in type(child).__name__]
    name = atom(letter.strip() + "".join(below))
    return Term("^", (name, *above)) if above else name


def number(value: Fraction | int | str, decimal: bool = False) -> Term:
    return Term("number", (Fraction(value), decimal))


def minus(part: Term) -> Term:
    return Term("-", (part,))


def join(kind: str, *parts: Term) -> Term:
    """Return a sum or a product of terms, whose own sums or products are opened."""
    opened = [p for part in parts for p in (part.parts if part.kind == kind else [part])]
    return Term(kind, tuple(sorted(opened, key=repr))) if len(opened) > 1 else opened[0]


def is_mixed(*parts: Term) -> bool:
    whole, fraction = parts[0], parts[-1]
    return len(parts) == 2 and is_integer(whole) and is_fraction(fraction)


def mixed(whole: Term, fraction: Term) -> Term:
    return Term("mixed", (whole, fraction))


def is_integer(part: Term) -> bool:
    return part.kind == "number" and not part.parts[1]


def is_fraction(part: Term) -> bool:
    return part.kind == "/" and all(map(is_integer, part.parts))


# --- What is left to do in a term ---


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


def work(whole: Term) -> set[str]:
    """Return the names of everything that is not in the list of open forms."""
    return {name for part in subterms(whole) for name in WORK.get(part.kind, unlisted)(part)}


def unlisted(part: Term) -> Iterator[str]:
    if not HOLDERS.match(part.kind):
        yield part.kind


def of_name(part: Term) -> Iterator[str]:
    if not SETS.match(part.parts[0]):
        yield part.parts[0]


def of_minus(part: Term) -> Iterator[str]:
    if signs(part) > 1:
        yield "double sign"


def of_sum(part: Term) -> Iterator[str]:
    if is_constant(part):
        yield "sum of constants"
    addends = [monomial(addend, simple=True) for addend in part.parts]
    if any(value == 0 for value, _ in addends):
        yield "zero"
    if len({frozenset(factors.items()) for _, factors in addends}) < len(addends):
        yield "like terms"


def of_product(part: Term) -> Iterator[str]:
    yield from of_minus(part)
    factors = [monomial(factor) for factor in part.parts]
    pure = [value for value, others in factors if not others]
    others = [factor for _, others in factors for factor in others]
    if any(factor.kind.startswith("matrix") for factor in others):
        yield "product of a matrix"
    if {0, 1, -1} & set(pure) or len([value for value, _ in factors if abs(value) != 1]) > 1:
        yield "product of numbers"
    roots = [factor for factor in others if factor.kind == "root"]
    names = [factor for factor in others if factor.kind == "name"]
    if len(roots) > 1 or len(set(names)) < len(names):
        yield "product of powers"


def of_quotient(part: Term) -> Iterator[str]:
    yield from of_minus(part)
    over, under = part.parts
    above, below = content(over), content(under)
    factors = [monomial(half)[1] for half in part.parts]
    if not is_constant(under):
        yield "denominator"
    elif under == number(1) or not below or (below != 1 and above % below == 0):
        yield "division"
    if above.denominator > 1 or below.denominator > 1 or set(factors[0]) & set(factors[1]):
        yield "division"
    roots = [[content(f.parts[0]) for f in half if f.kind == "root"] for half in factors]
    if max(map(len, roots)) > 1 or (all(roots) and gcd(*(r.numerator for (r,) in roots)) > 1):
        yield "product of powers"


def of_power(part: Term) -> Iterator[str]:
    base, exponent = part.parts
    value, factors = monomial(exponent)
    if is_constant(base) or base.kind == "^" or (not factors and value in (0, 1)):
        yield "power"
    if factors:
        yield "exponential"
    elif value < 0:
        yield "denominator"
    if value.denominator > 1:
        yield "root"


def of_root(part: Term) -> Iterator[str]:
    yield "root"
    if not monomial(part, simple=True)[1]:
        yield "root of a power"


def of_mixed(part: Term) -> Iterator[str]:
    above, below = part.parts[1].parts
    if not 0 < above.parts[0] < below.parts[0]:
        yield "sum of constants"


WORK = {
    "name": of_name, "-": of_minus, "+": of_sum, "*": of_product, "/": of_quotient,
    "^": of_power, "root": of_root, "mixed": of_mixed,
}  # fmt: skip


def signs(part: Term) -> int:
    """Return how many minus signs a product or quotient has."""
    own = [signs(factor) for factor in part.parts] if part.kind in ("-", "*", "/") else []
    return sum(own) + (part.kind == "-")


def monomial(part: Term, simple: bool = False) -> tuple[Fraction, Counter[Term]]:
    """Return a term's rational factor, and its other factors with their exponents.

    Args:
        simple: whether \\sqrt{8} has the factor 2.
    """
    if part.kind == "number":
        return part.parts[0], Counter()
    if part.kind not in ("-", "*", "/", "mixed", "^", "root"):
        return Fraction(1), Counter({part: 1})
    inner = [monomial(factor, simple) for factor in part.parts]
    (value, factors), (other, others) = inner[0], inner[-1]
    match part.kind:
        case "-":
            return -value, factors
        case "*":
            return prod(value for value, _ in inner), merged(*(factors for _, factors in inner))
        case "/" if other:
            return value / other, merged(factors, {key: -times for key, times in others.items()})
        case "mixed":
            return value + other, Counter()
        case "^" if factors and not others and other.denominator == 1:
            return Fraction(1), Counter({part.parts[0]: int(other)})
        case "root" if simple and not factors and value > 0 and part.parts[1] in ROOTS:
            number, rest = root(Rational(value), ROOTS[part.parts[1]]).as_coeff_Mul()
            left = Counter() if rest == 1 else Counter({Term("root", (str(rest),)): 1})
            return Fraction(int(number.p), int(number.q)), left
    return Fraction(1), Counter({part: 1})


ROOTS = {number(index): index for index in range(2, 10)}


def merged(*factors: dict[Term, int]) -> Counter[Term]:
    times = Counter()
    for part in factors:
        times.update(part)
    return Counter({factor: exponent for factor, exponent in times.items() if exponent})


def content(part: Term) -> Fraction:
    """Return the largest number by which every addend can be divided."""
    values = [monomial(addend)[0] for addend in (part.parts if part.kind == "+" else [part])]
    above, below = gcd(*(v.numerator for v in values)), lcm(*(v.denominator for v in values))
    return Fraction(above, below)


# --- Answers ---


@functools.lru_cache(maxsize=4096)
def written(text: str) -> Term | None:
    """Return a normalized formula as a term; None if it is none."""
    tree = parse(text)
    return tree and term(tree)


def is_worked_out(gold: str, answer: str, question: str) -> bool:
    """Whether an answer leaves no more to do than the known answer, and is not copied.

    Args:
        gold: the known answer, normalized.
        answer: normalized.
        question: the problem's text.

    Raises:
        Unreadable: the answer is not an expression, and the known answer is one.
    """
    known, given = written(gold), written(answer)
    if known is None:
        return True  # words: they are compared as such
    if given is None:
        raise Unreadable(answer)
    is_equation = any(part.kind == "=" for part in subterms(known))
    expected, found = said(known, is_equation), said(given, is_equation)
    allowed = work(expected) | (set() if is_constant(expected) else letters(known))
    if "power" in allowed:
        allowed.add("root")
    return work(found) <= allowed and not is_copied(expected, found, question)


def said(whole: Term, is_equation: bool) -> Term:
    """Return an answer without "x =" before its right sides.

    Args:
        is_equation: whether an equation is asked for; its sides are kept, unless one is a name.
    """
    if whole.kind == "=":
        left, right = whole.parts
        if not is_equation or is_name(left):
            return said(right, is_equation)
        if is_name(right):
            return said(left, is_equation)
    parts = [said(part, is_equation) if isinstance(part, Term) else part for part in whole.parts]
    return Term(whole.kind, tuple(parts))


def is_name(part: Term) -> bool:
    """Whether a term is a variable or a function of variables, f(x)."""
    applied = part.parts and all(isinstance(p, Term) and p.kind == "name" for p in part.parts)
    return part.kind == "name" or (applied and part.kind.isalpha() and len(part.kind) == 1)


def is_copied(expected: Term, found: Term, question: str) -> bool:
    """Whether the answer stands in the question, in another form than the known answer has.

    \\sqrt{8} equals 2\\sqrt{2}, but is no answer to "Simplify \\sqrt{8}". An integer may be the
    answer and stand in the question too.
    """
    bare = found.parts[0] if found.kind == "-" else found
    return not is_integer(bare) and found != expected and found in formulas(question)


FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(\d+/\d+|\d*\.\d+)",
    re.DOTALL,
)
DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
PIECES = re.compile(
    r"\\\\|\\(?:begin|end)\{[a-z*]+\}|\\(?:text|mbox)\{[^{}]*\}|[&=<>,;:]|\\[gl]eq?\b"
)


@functools.lru_cache(maxsize=64)
def formulas(question: str) -> frozenset[Term]:
    """Return the formulas of a question and all that they consist of."""
    found = set()
    for match in FORMULA.finditer(DRAWING.sub("", question)):
        formula = next(filter(None, match.groups())).strip(" .,;")
        whole = written(normalize(formula))
        for piece in [whole] if whole else map(written, map(normalize, PIECES.split(formula))):
            found.update(subterms(piece) if piece else ())
    return frozenset(found)
