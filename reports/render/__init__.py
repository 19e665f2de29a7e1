"""Tables, and the whole report, as text: `latex`, `text` for a terminal, `html`.

Each takes plain data and decides nothing but how it looks.
"""

from collections.abc import Sequence


def panels(widths: Sequence[int], most: int) -> list[list[int]]:
    """Deal out columns so that each panel fits the width; return their positions by panel."""
    dealt: list[list[int]] = []
    used = 0
    for position, width in enumerate(widths):
        used += width
        if not dealt or used > most:
            dealt.append([])
            used = width
        dealt[-1].append(position)
    return dealt
