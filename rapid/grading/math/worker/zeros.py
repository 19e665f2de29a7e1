"""Decides exactly whether expressions of sympy are zero."""

import random
from math import comb, gcd, prod

import sympy
from latex import Unreadable
from sympy import Expr, Rational

# The value of f(x) is call(f, x), of which nothing else is known. So f(1) is not f times 1.
CALL = sympy.Function("call", real=True)
MAX_FACTORED = 1_000_000  # the largest number whose prime factors are computed
# Numbers of terms. If an expansion would have more than the first, numbers are first put in for the
# letters. An expansion of more than the second is not computed.
QUICK_TERMS, MAX_TERMS = 50, 1000
# Limits of polynomials that are factored. Time grows with the coefficients that a polynomial of its
# degree in its letters may have.
MAX_DEGREE, MAX_COEFFICIENTS = 100, 250
PLACES = 50  # decimal places with which a value at a point is computed at most


def is_zero(expression: Expr) -> bool:
    """Return whether an expression's numerator expands to 0. Its denominator must not be 0.

    Raise Unreadable if the expansion would be too large, and the expression may be 0.
    """
    if expression.is_Rational:
        return expression == 0
    numerator = sympy.fraction(sympy.together(expression))[0]
    terms, _ = measure_expansion(numerator)
    if terms > QUICK_TERMS and is_nonzero_at_a_point(numerator):
        return False
    if terms > MAX_TERMS:
        raise Unreadable(f"an expansion of more than {MAX_TERMS} terms is not computed")
    if sympy.expand(numerator) == 0:
        return True
    rewritten = split_exponentials(expression)
    return rewritten != expression and is_zero_when_expanded(rewritten)


def is_zero_when_expanded(expression: Expr) -> bool:
    """Return whether an expression's numerator expands to 0, with no more rewriting."""
    numerator, _ = sympy.fraction(sympy.together(expression))
    return sympy.expand(numerator) == 0


def is_nonzero_at_a_point(expression: Expr) -> bool:
    """Return whether an expression is certainly not 0 if numbers are put in for its letters.

    sympy raises an ArithmeticError (PrecisionExhausted) if the places of the result are not all
    correct. It cannot find out in this way that an expression is 0.
    """
    expression = unify_calls(expression)
    calls = {call: sympy.Dummy(real=True) for call in expression.atoms(CALL)}
    expression = expression.xreplace(calls)
    rng = random.Random(0)
    letters = sorted(expression.free_symbols, key=sympy.default_sort_key)
    point = {letter: Rational(rng.randrange(100, 200), 149) for letter in letters}
    try:
        return bool(expression.evalf(3, subs=point, maxn=PLACES, strict=True) != 0)
    except (ArithmeticError, NotImplementedError):
        return False


def measure_expansion(expression: Expr) -> tuple[int, int]:
    """Return upper bounds of the number of terms and of the degree of an expanded expression.

    A part that is no sum, product or power with a positive integer is counted like a letter. The
    number of terms is at least that of the expressions in such a part, and at most MAX_TERMS + 1.
    """
    inner_terms = {}  # the number of terms within a part that is counted like a letter

    def measure(part: Expr) -> tuple[int, int]:
        if part.is_Rational:
            return 1, 0
        if part.is_Pow and part.exp.is_Integer and part.exp.is_positive:
            (terms, degree), exponent = measure(part.base), int(part.exp)
            terms = comb(exponent + terms - 1, exponent)
            return min(terms, MAX_TERMS + 1), degree * exponent
        measures = [*map(measure, part.args)]
        if part.is_Add:
            return sum(terms for terms, _ in measures), max(degree for _, degree in measures)
        if part.is_Mul:
            terms = prod(terms for terms, _ in measures)
            return min(terms, MAX_TERMS + 1), sum(degree for _, degree in measures)
        inner_terms[part] = max((terms for terms, _ in measures), default=1)
        return 1, 1

    terms, degree = measure(expression)
    terms = min(terms, comb(degree + len(inner_terms), degree))
    return max(terms, *inner_terms.values(), 1), degree


def factor_polynomial(expression: Expr) -> list[tuple[Expr, int]]:
    """Return the irreducible factors of a polynomial, and how often each occurs.

    Raise Unreadable if the degree is too high, or if it is with that number of letters.
    """
    _, degree = measure_expansion(expression)
    letter_count = len(expression.free_symbols)
    if degree > MAX_DEGREE or comb(degree + letter_count, degree) > MAX_COEFFICIENTS:
        raise Unreadable(f"a polynomial of degree {degree} in {letter_count} letters")
    return sympy.factor_list(expression)[1]


def unify_calls(expression: Expr) -> Expr:
    """Return an expression with f(x^2+x) in place of f(x(x+1)), if it has both, and so on."""
    unified: dict[Expr, Expr] = {}
    for call in sorted(expression.atoms(CALL), key=sympy.default_sort_key):
        unified[call] = next((twin for twin in unified if is_same_call(call, twin)), call)
    return expression.xreplace(unified)


def is_same_call(first: Expr, second: Expr) -> bool:
    """Return whether two calls have the same function and equal arguments."""
    return len(first.args) == len(second.args) and all(
        is_zero(unify_calls(our_argument - their_argument))
        for our_argument, their_argument in zip(first.args, second.args, strict=True)
    )


def denest_roots(expression: Expr) -> Expr:
    """Return an expression with 1 + sqrt(2) in place of sqrt(3 + 2 sqrt(2)), and so on.

    Each root is rewritten on its own, because sympy takes 1/sqrt(a) for sqrt(a) in sums of both.
    """
    return expression.replace(
        lambda part: part.is_Pow and (2 * part.exp).is_Integer and part.base.is_positive,
        lambda root: sympy.sqrtdenest(sympy.sqrt(root.base)) ** (2 * root.exp),
    )


# --- Exponentials: powers of a positive number with a letter in the exponent ---


def is_factorable_exponential(base: Expr, exponent: Expr) -> bool:
    """Return whether a power is an exponential whose base can be factored, such as 4^n."""
    is_positive = base.is_Rational and base.is_positive and base != 1
    return bool(is_positive and max(base.p, base.q) <= MAX_FACTORED and exponent.free_symbols)


def split_exponentials(expression: Expr) -> Expr:
    """Return an expression in which equal exponentials are written in the same way.

    6^{n+1} becomes 6 exp(n a + n b). The symbols a and b stand for the logarithms of 2 and 3. No
    sum of logarithms of different primes is zero, so only equal exponentials become the same.
    """

    def split(exponential: Expr) -> Expr:
        number, rest = sympy.expand(exponential.exp).as_coeff_Add()
        exponents = sympy.factorrat(exponential.base).items()
        logarithm = sympy.Add(*(k * sympy.Symbol(f"log {p}", real=True) for p, k in exponents))
        return exponential.base**number * sympy.exp(sympy.expand(rest * logarithm))

    return expression.replace(
        lambda part: part.is_Pow and is_factorable_exponential(*part.args), split
    )


def get_primitive_base(number: Rational) -> Rational:
    """Return the smallest number above 1 of which a positive number is a power: 2 for 8 and 1/4."""
    exponents = sympy.factorrat(number)
    index = gcd(*exponents.values())
    base = sympy.Mul(*(sympy.Integer(p) ** (k // index) for p, k in exponents.items()))
    return max(base, 1 / base)
