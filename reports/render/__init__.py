"""Tables, and the whole report, as text: `latex`, `text` for a terminal, `html`, `markdown`, `csv`.

Each takes plain data and decides nothing but how it looks.
"""

from collections.abc import Callable, Sequence

import jinja2


def split_columns(widths: Sequence[int], max_width: int) -> list[list[int]]:
    """Deal out columns so that each panel fits the width; return their positions by panel."""
    panels: list[list[int]] = []
    used = 0
    for position, width in enumerate(widths):
        used += width
        if not panels or used > max_width:
            panels.append([])
            used = width
        panels[-1].append(position)
    return panels


def load_template(name: str, filters: dict[str, Callable], **options) -> jinja2.Template:
    """Return a template of this package. What it does not know is an error, not an empty text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports.render"),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        **options,
    )
    environment.filters |= filters
    return environment.get_template(name)
