"""The page layout that tables and figures are made for: report.style in params.yaml."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from rapid.config.params_schema import ReportParams

FILE = Path(__file__).with_name("paper_styles.yaml")
POINTS_PER_INCH = 72.27  # TeX's points


@dataclass(frozen=True)
class PaperStyle:
    """The layout of a paper.

    Args:
        columns: number of text columns on a page.
        text_width, column_width, text_height: sizes of the text on a page, in inches.
        type_size: size of the text, in TeX points.
        caption: where the caption of a table stands.
        notes: where the notes of a table stand: below it, in its caption, after all tables, or
            nowhere.
    """

    columns: int
    text_width: float
    column_width: float
    text_height: float
    type_size: float
    caption: Literal["above", "below"]
    notes: Literal["below", "caption", "end", "none"] = "below"

    @classmethod
    def from_params(cls, report: ReportParams) -> "PaperStyle":
        """Return the layout of a named style, changed by the other values of `report`."""
        changes = report.model_dump(exclude={"style"}, exclude_none=True)
        return cls(**load_styles()[report.style] | changes)


@cache
def load_styles() -> dict[str, dict[str, Any]]:
    """Return paper_styles.yaml: the fields of `PaperStyle` by the name of a style."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


PLAIN_STYLE = PaperStyle.from_params(ReportParams())
