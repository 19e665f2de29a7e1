"""Figures as they are drawn, for tests that look at what is where."""

from reports.paper_style import PLAIN_STYLE, PaperStyle
from reports.plots import style


def draw(figure: style.Figure, page: PaperStyle = PLAIN_STYLE) -> style.Canvas:
    """Return a figure that is laid out for a page."""
    with style.use_style(page):
        canvas = style.lay_out(figure, page)
        canvas.draw_without_rendering()
    return canvas
