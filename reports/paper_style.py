"""The page that tables and figures are made for, by report.style in params.yaml."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from rapid.config.sections import ReportParams

FILE = Path(__file__).with_name("paper_styles.yaml")
POINTS_PER_INCH = 72.27  # TeX's


@dataclass(frozen=True)
class PaperStyle:
    """The layout of a paper. Lengths are in inches, sizes of type in TeX points."""

    columns: int
    text_width: float
    column_width: float
    text_height: float
    type_size: float
    caption: Literal["above", "below"]  # where the caption of a table stands
    notes: Literal["below", "caption", "end", "none"] = "below"  # of a table

    @classmethod
    def from_params(cls, report: ReportParams) -> "PaperStyle":
        """Return the layout of a conference, with the lengths and places that the user set."""
        chosen = report.model_dump(exclude={"style"}, exclude_none=True)
        return cls(**load_styles()[report.style] | chosen)


@cache
def load_styles() -> dict[str, dict[str, Any]]:
    """Return paper_styles.yaml: the fields of `PaperStyle` by the name of the style."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


PLAIN = PaperStyle.from_params(ReportParams())
