"""Lines of a figure can be told apart: in colour, by colour-blind readers, and in grey print."""

import random
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from rapid.algorithms import ALGORITHMS, RAPID
from reports.plots import series_styles
from reports.plots.series_styles import assign_styles
from reports.report_data import ReportData
from tests.algorithms.test_registry import to_cielab
from tests.conftest import load_default_values

# Of linear RGB; dichromats as in Machado, Oliveira and Fernandes 2009, "A Physiologically-based
# Model for Simulation of Color Vision Deficiency", table of severity 1.0; grey is the luminance of
# sRGB, IEC 61966-2-1.
VISIONS = {
    "all colours": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "grey": [[0.2126, 0.7152, 0.0722]] * 3,
}
FAR = 20  # in CIELAB: colours of thin lines that nobody mixes up
UNIT = 5
REINFORCED = [name for name in ALGORITHMS if ALGORITHMS[name].h_in_name == "optional"]
RAPIDS = [RAPID.format_name(h) for h in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128)]
DEFAULT = ["sft", "grpo", "naive-grpo", "pg", "dapo", *map(RAPID.format_name, (2, 4, 8, 16))]
VARIANTS = ["eta=1", "eta=4", "clip=both", "clip=nowhere", "weighted=false", "baseline=none"]
FIGURES = {
    "the default": DEFAULT,
    "each algorithm": [*ALGORITHMS.keys() - {"rapid"}, *map(RAPID.format_name, (2, 4, 8, 16))],
    "each H": RAPIDS,
    "H of an algorithm": ["pg", *(f"pg-H{h}" for h in range(2, 17))],
    "variants": ["rapid-H4", *(f"rapid-H4,{change}" for change in VARIANTS)],
    "variants and H": [*RAPIDS, *(f"rapid-H8,{change}" for change in VARIANTS), "pg", "grpo"],
    "algorithms of others": ["pg", "rapid-H4", *(f"their-{number}" for number in range(9))],
    "studies": [
        name
        for study in load_default_values()["studies"]["compared"].values()
        for name in study["algorithms"]
    ],
}


def see_color(color: str, vision: str) -> np.ndarray:
    """Return a colour in CIELAB as it is seen."""
    channels = np.array(to_rgb(color))
    linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
    seen = np.clip(np.array(VISIONS[vision]) @ linear, 0, 1)
    return np.array(
        to_cielab(np.where(seen > 0.0031308, 1.055 * seen ** (1 / 2.4) - 0.055, 12.92 * seen))
    )


@cache
def measure_overlap(dash: tuple, other: tuple) -> float:
    """Return the share of the length where two lines are both drawn, or both not, at best."""
    first, second = map(draw_dashes, (dash, other))
    return max((first == np.roll(second, shift)).mean() for shift in range(40 * UNIT))


def draw_dashes(dash: tuple) -> np.ndarray:
    """Return where a line is drawn, with UNIT values for each width of the line."""
    lengths = np.round(UNIT * np.array(dash or (1,))).astype(int)
    return np.resize(np.repeat(np.arange(len(lengths)) % 2 == 0, lengths), 240 * UNIT)


def is_distinguishable(line: series_styles.SeriesStyle, other: series_styles.SeriesStyle) -> bool:
    colors = ((see_color(line.color, v), see_color(other.color, v)) for v in VISIONS)
    distances = (np.linalg.norm(first - second) for first, second in colors)
    in_grey = line.marker != other.marker and measure_overlap(line.dash, other.dash) < 0.9
    return in_grey or min(distances) > FAR


def check_lines_differ(names) -> None:
    assigned = assign_styles(names)
    for name, other in combinations(assigned, 2):
        assert is_distinguishable(assigned[name], assigned[other]), (name, other)
        assert assigned[name].color != assigned[other].color, (name, other)


@pytest.mark.parametrize("names", FIGURES.values(), ids=FIGURES)
def test_any_two_lines_of_a_figure_differ_in_each_vision_or_in_marker_and_dash(names):
    check_lines_differ(names)


def test_lines_of_any_choice_of_algorithms_are_told_apart():
    choose = random.Random(0)
    for _ in range(10):
        algorithms = [*choose.sample(REINFORCED, 8), *["rapid"] * 8]
        names = {f"{name}-H{choose.randint(1, 40)}": None for name in algorithms}
        check_lines_differ([*names, *(f"{name},epochs=2" for name in [*names][-4:])])


def test_an_algorithm_has_one_style_in_all_figures_of_a_report(params, tmp_path):
    """Those of Tables 1 and 3 are assigned together; a declared style that is free is kept."""
    assigned = series_styles.assign_report_styles(ReportData.read(params, tmp_path))
    assert [*assigned][-2:] == ["rapid-H2", "rapid-H4"]
    for name, line in assigned.items():
        declared = series_styles.get_declared_style(name)
        assert (line.color, line.marker) == (declared.color, (declared.marker, False))
        assert str(line.line) == str(declared.line)
