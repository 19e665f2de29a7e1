"""Generates theorems from a seed, in core Lean 4 over Nat and Int, with proofs of one or two steps.

A proof needs the numbers of its statement in the right places. There are two kinds of proofs. One
gives a witness, which is computed from an equation. The other proves a property of a whole
sequence; the statement is about one distant element of it. Lean's automation cannot find such
proofs: there are too many candidates for the witness, and too many steps to the element. So no
fixed list of tactics such as `first | omega | grind | ...` proves one of the theorems
(tests/benchmarks/universal_proofs.py).

The mistakes are a wrong sign or operation, and swapped numbers.
"""

import random
from typing import NamedTuple

from rapid.benchmarks.base import Exercise
from rapid.benchmarks.minif2f.record import LeanProblem

VARIABLES = ("n", "x", "a", "k")
# Ranges of base and exponent of an equation's right side. The solutions, which a proof gives as
# witnesses, are above 80,000.
POWER = (30, 99), (4, 5)
# Range of the distance to the element that a statement is about, in steps or in periods.
FAR = (20_000, 99_999)


class GeneratedTheorem(NamedTuple):
    """A statement without the theorem's name, a proof, and proofs with a mistake."""

    statement: str
    proof: str
    mistakes: list[str]


def draw(rng: random.Random, id: str) -> Exercise:
    """Draw an exercise with a theorem whose name is the id."""
    theorem = rng.choice([_draw_witness, _draw_preimage, _draw_recurrence, _draw_period])(rng)
    statement = f"theorem {id} {theorem.statement} := by\n"
    problem = LeanProblem(name=id, formal_statement=statement)
    mistakes = tuple(mistake for mistake in theorem.mistakes if mistake != theorem.proof)
    return Exercise(problem, theorem.proof, mistakes)


def _join_tactics(*tactics: str) -> str:
    """Return the text of a proof, one indented tactic per line."""
    return "".join(f"  {tactic}\n" for tactic in tactics)


def _draw_equation(rng: random.Random, reason: str) -> tuple[str, ...]:
    """Draw an equation `factor * x + term = base ^ exponent`, or the same with a minus, over Nat.

    Over Int, `simp +arith` would solve it. Returns the variable, both sides, a proof that the
    equation has a solution, and two proofs with a mistake. A proof gives the solution, and `reason`
    as the proof that it is one.
    """
    # `plus` is the sign in the equation, + or -. `minus` is the opposite sign, for the solution.
    x, plus, minus = rng.choice(VARIABLES), *rng.choice(("+-", "-+"))
    base, exponent = (rng.randint(*bounds) for bounds in POWER)
    factor = rng.randint(2, 9)
    # A term for which the solution, (base^exponent ± term) / factor, is a whole number.
    power = base**exponent if plus == "+" else -(base**exponent)
    term = rng.choice([term for term in range(10, 100) if (term - power) % factor == 0])

    def write_proof(minus: str, division: str) -> str:
        # In a mistake one of these is another operation.
        witness = f"({base} ^ {exponent} {minus} {term}) {division} {factor}"
        return _join_tactics(f"exact ⟨{witness}, {reason}⟩")

    sides = f"{factor} * {x} {plus} {term}", f"{base} ^ {exponent}"
    return x, *sides, write_proof(minus, "/"), write_proof(plus, "/"), write_proof(minus, "-")


def _draw_witness(rng: random.Random) -> GeneratedTheorem:
    """Draw a theorem which says that an equation has a solution."""
    x, lhs, rhs, proof, *mistakes = _draw_equation(rng, "rfl")
    return GeneratedTheorem(f": ∃ {x} : Nat, {lhs} = {rhs}", proof, mistakes)


def _draw_preimage(rng: random.Random) -> GeneratedTheorem:
    """Draw a theorem which says that a linear function takes a value."""
    x, lhs, rhs, proof, *mistakes = _draw_equation(rng, "h₀ _")
    statement = f"(f : Nat → Nat) (h₀ : ∀ {x}, f {x} = {lhs}) : ∃ {x}, f {x} = {rhs}"
    return GeneratedTheorem(statement, proof, mistakes)


def _draw_recurrence(rng: random.Random) -> GeneratedTheorem:
    """Draw a theorem about an element of an arithmetic sequence, given another element.

    The values are in Int. In Nat the known element might contradict the elements before it, which
    would be negative.
    """
    # f(place) = start is given, and f(n + 1) = f(n) + step. The statement is about f(far + place).
    place, start, step = rng.randint(10, 99), rng.randint(1, 9), rng.randint(2, 9)
    far = rng.randint(*FAR)

    def write_proof(place: int, step: int, start: int) -> str:
        # By induction on n, from the given element h₀ on.
        rest = "n.rec h₀ fun n ih => (h₁ _).trans (by omega)"
        return _join_tactics(
            f"have h n : f (n + {place}) = {step} * n + {start} := {rest}", "exact h _"
        )

    statement = (
        f"(f : Nat → Int) (h₀ : f {place} = {start}) (h₁ : ∀ n, f (n + 1) = f n + {step}) : "
        f"f {far + place} = {step * far + start}"
    )
    # Each mistake swaps two of the three numbers.
    mistakes = [write_proof(place, start, step), write_proof(start, step, place)]
    return GeneratedTheorem(statement, write_proof(place, step, start), mistakes)


def _draw_period(rng: random.Random) -> GeneratedTheorem:
    """Draw a theorem about an element of a periodic sequence, given another element."""
    # f(place) = value is given, and f(n + period) = f(n). The statement is about f(place + m) for a
    # multiple m of the period.
    place, value, period = rng.randint(10, 99), rng.randint(1, 9), rng.randint(2, 9)
    kind, far = rng.choice(("Nat", "Int")), rng.randint(*FAR)

    def write_proof(place: int, period: int, value: int) -> str:
        rest = "n.rec h₀ fun _ => (h₁ _).trans"
        return _join_tactics(
            f"have h n : f ({place} + {period} * n) = {value} := {rest}", "exact h _"
        )

    statement = (
        f"(f : Nat → {kind}) (h₀ : f {place} = {value}) (h₁ : ∀ n, f (n + {period}) = f n) : "
        f"f ({place} + {period} * {far}) = {value}"
    )
    # Each mistake swaps two of the three numbers.
    mistakes = [write_proof(period, place, value), write_proof(value, period, place)]
    return GeneratedTheorem(statement, write_proof(place, period, value), mistakes)
