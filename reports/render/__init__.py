"""Renders tables and reports: `latex`, `text` (for a terminal), `html`, `markdown` and `csv`.

Each module prints tables that are plain data (`reports.tables.table`), and computes no values.
"""

from collections.abc import Callable, Sequence

import jinja2


def split_columns(widths: Sequence[int], max_width: int) -> list[list[int]]:
    """Return the positions of the columns in each panel of a table that is split to fit a width.

    Panels stand below each other and are at most `max_width` wide. A column that is wider gets its
    own panel.
    """
    panels: list[list[int]] = []
    panel_width = 0
    for position, width in enumerate(widths):
        panel_width += width
        if not panels or panel_width > max_width:
            panels.append([])
            panel_width = width
        panels[-1].append(position)
    return panels


def load_template(name: str, filters: dict[str, Callable], **options) -> jinja2.Template:
    """Return a Jinja template of this package, in which an undefined variable is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports.render"),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        **options,
    )
    environment.filters |= filters
    return environment.get_template(name)
