"""Made theorems of core Lean 4 over Nat and Int, each with a proof of a few tactics.

What a proof needs stands in its statement: a witness to compute, a value to solve for, the tactic
that fits a goal. The mistakes are a wrong witness, `omega` where it cannot help, a rewrite in the
wrong order.
"""

import random
from typing import NamedTuple

from rapid.benchmarks.base import Exercise
from rapid.benchmarks.minif2f.record import LeanProblem

KINDS = ("Nat", "Int")
VARIABLES = (("x", "y"), ("a", "b"), ("m", "n"))


class Theorem(NamedTuple):
    """What follows the theorem's name, a proof of it, and attempts that fail."""

    statement: str
    proof: str
    failures: list[str]


def draw(rng: random.Random, id: str) -> Exercise:
    """Draw a theorem. Its name is the id."""
    theorem = rng.choice([_witnesses, _values, _recurrence, _conjunction])(rng)
    statement = f"theorem {id} {theorem.statement} := by\n"
    problem = LeanProblem(name=id, formal_statement=statement)
    failures = tuple(failure for failure in theorem.failures if failure != theorem.proof)
    return Exercise(problem, theorem.proof, failures)


def _lines(*tactics: str) -> str:
    return "".join(f"  {tactic}\n" for tactic in tactics)


def _witnesses(rng: random.Random) -> Theorem:
    kind, (u, v) = rng.choice(KINDS), rng.choice(VARIABLES)
    x, a, m, y = rng.randint(1, 40), rng.randint(1, 40), rng.randint(2, 9), rng.randint(2, 9)
    total, product = x + a, m * y

    def proof(minus: str, over: str) -> str:
        witnesses = f"⟨{total} {minus} {a}, {product} {over} {m}, ?_, ?_⟩"
        return _lines(f"refine {witnesses}", "· decide", "· decide")

    statement = f": ∃ {u} {v} : {kind}, {u} + {a} = {total} ∧ {m} * {v} = {product}"
    return Theorem(statement, proof("-", "/"), [proof("+", "/"), proof("-", "-")])


def _values(rng: random.Random) -> Theorem:
    kind, (u, v) = rng.choice(KINDS), rng.choice(VARIABLES)
    x, a, m = rng.randint(1, 40), rng.randint(1, 40), rng.randint(2, 9)
    total, y = x + a, m * x

    def proof(minus: str, last: str) -> str:
        return _lines(f"have h₂ : {u} = {total} {minus} {a} := by omega", last)

    statement = (
        f"({u} {v} : {kind}) (h₀ : {u} + {a} = {total}) (h₁ : {v} = {m} * {u}) : "
        f"{u} * {v} = {x * y}"
    )
    simp = "simp [h₁, h₂]"
    return Theorem(statement, proof("-", simp), [proof("+", simp), proof("-", "omega")])


def _recurrence(rng: random.Random) -> Theorem:
    start, step = rng.randint(1, 99), rng.randint(2, 99)

    def proof(zero: str, succ: str) -> str:
        return _lines("induction n with", f"| zero => {zero}", f"| succ n ih => {succ}")

    statement = (
        f"(f : Nat → Nat) (h₀ : f 0 = {start}) (h₁ : ∀ n, f (n + 1) = f n + {step}) (n : Nat) : "
        f"f n = {step} * n + {start}"
    )
    return Theorem(
        statement,
        proof("simp [h₀]", "rw [h₁, ih]; omega"),
        [proof("simp [h₀]", "rw [ih, h₁]; omega"), proof("simp [h₁]", "rw [h₁, ih]; omega")],
    )


def _conjunction(rng: random.Random) -> Theorem:
    """Two goals of different kinds about a ≤ b, each with the tactic that proves it."""
    k, bound = rng.randint(2, 9), rng.randint(3, 9)
    goals = [
        (f"a < b + {k}", "omega", "decide"),
        (f"(∀ n, n < {bound} → n * n < {bound * bound})", "decide", "omega"),
        ("a * b = b * a", "exact Nat.mul_comm a b", "omega"),
        (f"a + {k} ≤ b + {k}", "omega", "decide"),
        (f"(a + b) * {k} = (b + a) * {k}", "rw [Nat.add_comm]", "decide"),
        (f"(∃ n : Nat, n + {k} = {bound + k})", f"exact ⟨{bound + k} - {k}, rfl⟩", "omega"),
    ]
    (p, p_tactic, p_wrong), (q, q_tactic, q_wrong) = rng.sample(goals, 2)

    def proof(first: str, second: str) -> str:
        return _lines("constructor", f"· {first}", f"· {second}")

    statement = f"(a b : Nat) (h₀ : a ≤ b) : {p} ∧ {q}"
    return Theorem(
        statement, proof(p_tactic, q_tactic), [proof(p_wrong, q_tactic), proof(p_tactic, q_wrong)]
    )
