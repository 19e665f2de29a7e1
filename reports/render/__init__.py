"""Renders tables and reports: `latex`, `text` (for a terminal), `html`, `markdown` and `csv`.

Each module prints tables that are plain data (`reports.tables.table`), and computes no values.
"""

from collections.abc import Callable, Sequence

import jinja2


def split_columns(widths: Sequence[int], max_width: int) -> list[list[int]]:
    """Distribute columns over panels, so that each panel fits a width.

    Args:
        widths: the width of each column, in the unit of `max_width`. A column wider than
            `max_width` gets its own panel.

    Returns:
        For each panel the positions of its columns.
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
    """Return a Jinja template of this package, in which an undefined variable is an error.

    Args:
        options: further arguments of `jinja2.Environment`.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports.render"),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        **options,
    )
    environment.filters |= filters
    return environment.get_template(name)
