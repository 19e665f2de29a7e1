"""Finds what an answer leaves to be worked out: 34+57 equals 91, and answers nothing.

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

from reading import Unreadable, normalize
from sympy import Rational, root
from terms import NUMBER, Term, is_constant, is_integer, letters, number, subterms, value, written

SETS = re.compile(r"\\mathbb|\\emptyset|\\infty|\\\\$|[∅ℕℤℚℝℂ]")  # \\ is left of \{\}
LISTS = re.compile("interval|(comma|semicolon)_elements")
# Rules of the grammar, and kinds of ours, that hold answers and are no work themselves.
HOLDERS = re.compile(
    "number|name|=|±|math|interval|ordered_tuple|finite_set|(comma|semicolon)_elements|matrix"
    "|subexpr|(minus|union|intersection)_expr|set_group|set_relation|relation|atom_expr_list"
)


# --- What is left to do in a term ---


def work(whole: Term) -> set[str]:
    """Return the names of everything that is not in the list of open forms."""
    return {name for part in subterms(whole) for name in work_at(part)}


def work_at(part: Term) -> Iterator[str]:
    """Yield what is left to do at the top of a term."""
    if signs(part) > 1:
        yield "double sign"
    match part.kind:
        case "name":
            if not SETS.match(part.parts[0]):
                yield part.parts[0]
        case "-":
            pass
        case "+":
            yield from of_sum(part)
        case "*":
            yield from of_product(part)
        case "/":
            yield from of_quotient(part)
        case "^":
            yield from of_power(part)
        case "root":
            yield "root"
            if not monomial(part, simple=True)[1] or is_power(part.parts[0]):
                yield "root of a power"
        case "mixed":
            above, below = part.parts[1].parts
            if not 0 < above.parts[0] < below.parts[0]:
                yield "sum of constants"
        case kind:
            if not HOLDERS.match(kind):
                yield kind  # nobody may write it unasked, such as a factorial
            if LISTS.match(kind) and len(set(part.parts)) < len(part.parts):
                yield "repetition"  # [5,5] is no other way to write 5


def of_sum(part: Term) -> Iterator[str]:
    """Yield what is odd about a sum: 34+57, or a constant sum where none is known."""
    if is_constant(part):
        yield "sum of constants"
    addends = [monomial(addend, simple=True) for addend in part.parts]
    if any(value == 0 for value, _ in addends):
        yield "zero"
    if len({frozenset(factors.items()) for _, factors in addends}) < len(addends):
        yield "like terms"


def of_product(part: Term) -> Iterator[str]:
    """Yield what is odd about a product: two numbers, two roots, a letter twice."""
    factors = [monomial(factor) for factor in part.parts]
    others = [factor for _, others in factors for factor in others]
    powers = [factor for factor in others if is_power(factor)]
    if any(factor.kind.startswith("matrix") for factor in others):
        yield "product of a matrix"
    if any(not others and value in (0, 1, -1) for value, others in factors):
        yield "product of numbers"
    if len([value for value, _ in factors if abs(value) != 1]) + len(powers) > 1:
        yield "product of numbers"
    names = [factor for factor in others if factor.kind == "name"]
    roots = [factor for factor in others if factor.kind == "root"]
    if len(roots) > 1 or len(set(names)) < len(names):
        yield "product of powers"


def of_quotient(part: Term) -> Iterator[str]:
    """Yield what is odd about a quotient: 182/2, nested fractions, common factors."""
    over, under = part.parts
    above, below = content(over), content(under)
    factors = [monomial(half)[1] for half in part.parts]
    if not is_constant(under):
        yield "denominator"
    elif under == number(1) or not below or (below != 1 and above % below == 0):
        yield "division"
    if above.denominator > 1 or below.denominator > 1 or set(factors[0]) & set(factors[1]):
        yield "division"
    if any(is_power(factor) for half in factors for factor in half):
        yield "quotient of powers"
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


def is_power(part: Term) -> bool:
    """Return whether a term is a number to some power that is a number."""
    return part.kind == "^" and not any(map(letters, part.parts))


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
        case "root" if simple and not factors and value >= 0 and part.parts[1:] in ROOTS:
            number, rest = root(Rational(value), ROOTS[part.parts[1:]]).as_coeff_Mul()
            left = Counter() if rest == 1 else Counter({Term("root", (str(rest),)): 1})
            return Fraction(int(number.p), int(number.q)), left
    return Fraction(1), Counter({part: 1})


ROOTS = {(): 2} | {(number(index),): index for index in range(3, 10)}


def merged(*factors: dict[Term, int]) -> Counter[Term]:
    """Return the product of powers, given by their exponents."""
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


def is_worked_out(gold: str, answer: str, question: str) -> bool:
    """Return whether an answer leaves no more to do than the known answer, and is not copied.

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
    if "power" in allowed or not is_constant(expected):  # factors of x^2-2 hold roots
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
    """Return whether a term is a variable or a function of variables, f(x)."""
    applied = part.parts and all(isinstance(p, Term) and p.kind == "name" for p in part.parts)
    return part.kind == "name" or (applied and part.kind.isalpha() and len(part.kind) == 1)


def is_copied(expected: Term, found: Term, question: str) -> bool:
    """Return whether the answer stands in the question, in another form than the known answer has.

    \\sqrt{8} equals 2\\sqrt{2}, but is no answer to "Simplify \\sqrt{8}". An integer may be the
    answer and stand in the question too.
    """
    bare = found.parts[0] if found.kind == "-" else found
    if is_integer(bare) or found == expected:
        return False
    values = {part.parts[0] for part in subterms(found) if part.kind == "number"}
    likely = (f for f in formulas(question) if values <= {value(n) for n in NUMBER.findall(f)})
    return any(found in parts_of(formula) for formula in likely)


FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(\d+/\d+|\d*\.\d+)",
    re.DOTALL,
)
PIECES = re.compile(
    r"\\\\|\\(?:begin|end)\{[a-z*]+\}|\\(?:text|mbox)\{[^{}]*\}|[&=<>,;:]|\\[gl]eq?\b"
)


def formulas(question: str) -> list[str]:
    """Return the formulas of a question, normalized."""
    found = (next(filter(None, match.groups())) for match in FORMULA.finditer(question))
    return [normalize(formula.strip(" .,;")) for formula in found]


@functools.lru_cache(maxsize=4096)
def parts_of(formula: str) -> frozenset[Term]:
    """Return the terms within a formula, or within the pieces of one that cannot be read whole."""
    whole = written(formula)
    pieces = [whole] if whole else map(written, PIECES.split(formula))
    return frozenset(part for piece in pieces if piece for part in subterms(piece))
