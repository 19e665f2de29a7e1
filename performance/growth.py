"""The figure of how the cost grows, growth.svg: the same bytes for the same figures."""

import io

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

SETTINGS = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E2E2E2",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "rapid",
    "figure.constrained_layout.use": True,
}
COLORS = ("#000000", "#0072B2", "#D55E00", "#56B4E9")  # Okabe and Ito's
MARKERS = "osv^"


def draw(documents: dict[str, dict]) -> str:
    """Return the figure as SVG, with a panel for each thing that grows and was measured."""
    phases, sizes, growth = (documents.get(part, {"rows": []})["rows"] for part in "bdh")
    panels = {
        "H": ("H, optimizer steps on an inference batch", phases),
        "length": ("tokens of a completion", _varied(sizes, "length")),
        "width": ("width of the model", _varied(growth, "width")),
        "processes": ("processes, a core each", _varied(growth, "processes")),
    }
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(2, 2, figsize=(7.4, 5.2))
        for (name, (label, rows)), panel in zip(panels.items(), axes.flat, strict=True):
            panel.set(xlabel=label, xscale="log", yscale="log", ylabel="s per 1,000 completions")
            values = sorted({row[name] for row in rows})
            panel.set_xticks(values, values)
            panel.set_xticks([], minor=True)
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_minor_locator(NullLocator())
            for number, n_step in enumerate(sorted({row["n_step"] for row in rows})):
                some = [row for row in rows if row["n_step"] == n_step]
                _line(panel, name, some, f"N_step={n_step}", number)
            if rows:
                panel.legend()
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
        plt.close(figure)
    return file.getvalue()


def _varied(rows: list[dict], name: str) -> list[dict]:
    return [row for row in rows if row["varied"] == name]


def _line(panel: Axes, name: str, rows: list[dict], label: str, number: int) -> None:
    """Draw what was measured, with its quartiles, and the ideal dashed."""
    color = COLORS[number % len(COLORS)]
    rows = sorted(rows, key=lambda row: row[name])
    values = [row[name] for row in rows]
    middle, low, high = zip(*(row["seconds_rapid"] for row in rows), strict=True)
    panel.plot(values, middle, MARKERS[number % len(MARKERS)] + "-", color=color, label=label)
    panel.fill_between(values, low, high, color=color, alpha=0.15, linewidth=0)
    panel.plot(values, [ideal(name, rows[0], row) for row in rows], "--", color=color)


def ideal(name: str, first: dict, row: dict) -> float:
    """Return the cost of a row if nothing were lost since the first."""
    cost = first["seconds_rapid"][0]
    match name:
        case "H":
            return cost - first["sampling"] * (1 - first["H"] / row["H"])
        case "width":
            return cost * row["parameters"] / first["parameters"]
        case "processes":
            return cost * first["processes"] / row["processes"]
    return cost * row[name] / first[name]
