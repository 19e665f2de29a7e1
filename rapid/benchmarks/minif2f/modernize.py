"""Rewrites theorems that were written for an earlier Mathlib, so that a present one reads them.

1. Modules of Mathlib in a header's imports become all of Mathlib, because modules were split and
   renamed: Mathlib.Algebra.BigOperators.Basic and Mathlib.Data.Nat.Digits in 2024, for example.
2. `∑ k in s, f k` becomes `∑ k ∈ s, f k`, and `∑ k : ℤ in s, f k` becomes
   `∑ k ∈ (s : Finset ℤ), f k`; the same for ∏. Mathlib's own macros did so until 2025, when it
   removed the form with `in`.

Everything else stays as it is, such as `open`, `set_option`, other imports, `∫ x in a..b` and
`let x := a in`. Nothing else that a later Mathlib has changed is rewritten.
"""

import re

# A line that imports Mathlib or one of its modules, perhaps with a comment.
_MATHLIB_IMPORT = re.compile(r"^import[ \t]+Mathlib(\.\S+)?[ \t]*(--.*)?$\n?", re.MULTILINE)

_VARIABLE = r"[^\W\d][\w']*"
_UNTYPED = re.compile(rf"([∑∏]\s*{_VARIABLE}\s+)in\b")
_TYPED = re.compile(rf"([∑∏]\s*{_VARIABLE})\s*:\s*([^\W\d][\w'.]*)\s+in\s+")
_OPENING, _CLOSING = "([{⟨", ")]}⟩"


def modernize_header(header: str) -> str:
    """Return a header that imports Mathlib as a whole, if it imports modules of it."""
    imports = list(_MATHLIB_IMPORT.finditer(header))
    if not any(match[1] for match in imports):
        return header
    start = imports[0].start()
    rest = _MATHLIB_IMPORT.sub("", header[start:])
    return f"{header[:start]}import Mathlib\n{rest}"


def modernize_statement(statement: str) -> str:
    """Return a statement with `∈` in place of `in` in its sums and products over finite sets."""
    statement = _UNTYPED.sub(r"\1∈", statement)
    while match := _TYPED.search(statement):
        length = _measure_set(statement[match.end() :])
        if not length:
            break  # no such sum: Lean will refuse the statement
        end = match.end() + length
        finite_set = f"({statement[match.end() : end]} : Finset {match[2]})"
        statement = f"{statement[: match.start()]}{match[1]} ∈ {finite_set}{statement[end:]}"
    return statement


def _measure_set(text: str) -> int:
    """Return the length of the text before the first comma outside of brackets; 0 if none is."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth < 0:
            return 0
        if character == "," and not depth:
            return position
    return 0
