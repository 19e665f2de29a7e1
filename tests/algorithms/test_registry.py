"""A registered algorithm class works everywhere, and no other module names an algorithm."""

import ast
import json
import re
from itertools import combinations

import pytest
import torch
from matplotlib.colors import to_rgb
from pydantic import Field

from rapid.algorithms import ALGORITHMS, LATER_ALGORITHMS
from rapid.algorithms.base import Algorithm, Parameters, PlotStyle
from rapid.algorithms.variant_names import build_name_pattern, parse_variant_name
from rapid.config import specs
from rapid.config.params import BadParams, load
from reports import labels
from reports.plots.series_styles import get_declared_style
from reports.report_data import ReportData
from reports.tables import results, setup
from tests.conftest import ROOT
from tests.training import loops


class LeaveOneOutParameters(Parameters):
    scale: float = Field(1.0, title="scale")


class LeaveOneOut(Algorithm):
    """REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024)."""

    name = "mine"
    label = "MINE"
    plot_style = PlotStyle("#123456", "d")
    parameters = LeaveOneOutParameters

    def loss(self, settings, inputs):
        groups = inputs.rewards.view(-1, inputs.group_size)
        baselines = (groups.sum(1, keepdim=True) - groups) / (inputs.group_size - 1)
        advantages = settings.scale * (groups - baselines).flatten()
        return -(advantages * (inputs.logp * inputs.mask).sum(1)).mean(), {}


@pytest.fixture
def registered_algorithm(monkeypatch):
    parse_variant_name.cache_clear()
    monkeypatch.setitem(ALGORITHMS, "mine", LeaveOneOut())
    yield
    parse_variant_name.cache_clear()


@pytest.mark.usefixtures("registered_algorithm")
def test_registered_algorithm_has_parameters_and_specs(values):
    names = ["mine", "mine-H4", "mine-H4,scale=2,n_step=8"]
    values["tables"]["main"]["algorithms"] += names
    values["mine"] = {"scale": 3.0}
    params = load(values)
    for name, H, scale in zip(names, (1, 4, 4), (3.0, 3.0, 2.0), strict=True):
        assert re.fullmatch(build_name_pattern(), name)
        run = specs.Run(benchmark="math", model="tiny-qwen2", algorithm=name, seed=1)
        assert run in specs.list_table_runs(params)
        spec = specs.build_train_spec(params, run)
        assert (spec.H, spec.objective) == (H, LeaveOneOutParameters(scale=scale))
        assert specs.TrainSpec.model_validate_json(spec.model_dump_json()) == spec
    without_section = {key: value for key, value in values.items() if key != "mine"}
    assert "mine" not in load(without_section).model_fields_set
    values["mine"] = {"scale": "much"}
    with pytest.raises(BadParams, match=r"mine\.scale: 'much' is invalid"):
        load(values)


@pytest.mark.usefixtures("registered_algorithm")
def test_registered_algorithm_trains(toy_model, tmp_path):
    start = loops.get_weights(loops.build_rapid_trainer(toy_model, tmp_path, "mine"))
    weights = {}
    for H in (1, 2):
        settings = {"H": H, "max_steps": 4, "parameters": {"scale": 2}}
        trainer = loops.train_rapid(toy_model, tmp_path, "mine", **settings)
        assert trainer.state.global_step == 4
        weights[H] = loops.get_weights(trainer)
        assert not torch.equal(weights[H], start)
    assert not torch.equal(weights[1], weights[2])


@pytest.mark.usefixtures("registered_algorithm")
def test_registered_algorithm_has_table_rows(values, tmp_path):
    values["tables"]["main"]["algorithms"] += ["mine", "mine-H4"]
    params = load(values)
    measured = ReportData.read(params, tmp_path)
    rows = results.build_main_table(measured).rows
    assert [row.label for row in rows][-2:] == ["MINE", "MINE (H=4)"]
    titles = {row.label for row in setup.build_rl_table(measured).rows}
    assert {"MINE: scale", "RAPID: eta", "RAPID: H"} <= titles


@pytest.mark.usefixtures("registered_algorithm")
def test_registered_algorithm_has_label_and_plot_style():
    assert labels.algorithm("mine") == "MINE"
    assert labels.algorithm("mine-H8,scale=2") == "MINE (H=8), scale = 2"
    assert get_declared_style("mine") == PlotStyle("#123456", "d")
    assert get_declared_style("mine-H4").color == "#123456"
    assert get_declared_style("mine-H4") != get_declared_style("mine-H8")


def test_plot_styles_of_algorithms_are_distinguishable():
    """They differ by marker and line, and by the distance of colours in CIELAB."""
    styles = [algorithm.plot_style for algorithm in ALGORITHMS.values()]
    assert len({(style.marker, str(style.line)) for style in styles}) == len(styles)
    coordinates = [torch.tensor(to_cielab(style.color)) for style in styles]
    assert min((a - b).norm() for a, b in combinations(coordinates, 2)) > 18


def to_cielab(color: str) -> list[float]:
    """Return CIELAB coordinates of a colour in sRGB."""
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in to_rgb(color)
    )
    x, y, z = (
        t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116
        for t in (
            (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
            0.2126 * red + 0.7152 * green + 0.0722 * blue,
            (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
        )
    )
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def test_off_policy_policy_gradient_logs_staleness(toy_model, tmp_path):
    settings = {"max_steps": 4}
    off_policy_log = loops.train_rapid(toy_model, tmp_path, "pg", H=2, **settings).state.log_history
    staleness = [row["rapid/staleness"] for row in off_policy_log if "rapid/staleness" in row]
    assert [value > 0 for value in staleness] == [False, True, False, True]
    on_policy_log = loops.train_rapid(toy_model, tmp_path, "pg", **settings).state.log_history
    assert not any("rapid/staleness" in row for row in on_policy_log)


def test_sections_with_defaults_only_are_not_in_specs(values):
    """Otherwise a new algorithm would make all reports stale."""
    plain = load(values).model_dump_json()
    assert not {algorithm.key for algorithm in LATER_ALGORITHMS} & json.loads(plain).keys()
    values["cispo"] = {"cap": 5.0}
    assert load(values).model_dump_json() == plain
    values["cispo"] = {"cap": 2.0}
    reloaded = load(json.loads(load(values).model_dump_json()))
    assert (reloaded.cispo.cap, reloaded.gspo.clip_low) == (2.0, 3e-4)
    default_settings = load(values).dapo.model_dump()
    assert "overlong_filtering" not in default_settings
    values["dapo"]["overlong_filtering"] = False
    assert load(values).dapo.model_dump() == default_settings


def test_specs_survive_json(values):
    params = load(values)
    for run in specs.list_table_runs(params):
        spec = specs.build_train_spec(params, run)
        assert specs.TrainSpec.model_validate(json.loads(spec.model_dump_json())) == spec


# Modules that may name an algorithm ---------------------------------------------------------------

OTHER_NAMES = [name for name in ALGORITHMS if name != "rapid"]
ATTRIBUTES = {algorithm.key for algorithm in ALGORITHMS.values()} - {"rapid"}
ALLOWED = {
    "reports/paper.py": {"grpo", "pg", "dapo", "naive-grpo"},  # in the paper's tables and claims
    "rapid/grading/memory_cgroups.py": {"rapid-"},  # control groups
    "rapid/training/trl/loss_trainer.py": {"dapo", "cispo", "vespo"},  # TRL's loss_types
    "performance/trainers.py": {"vespo", "sft"},  # a loss_type and a kind of trainer
}


def list_literals(tree: ast.AST):
    """Yield strings other than docstrings, and attributes, with whether each names an algorithm."""
    docstring_ids = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstring_ids
        ):
            yield (
                node.value,
                re.fullmatch(rf"({'|'.join(OTHER_NAMES)})|.*\brapid-H.*|rapid-", node.value),
            )
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.attr in ATTRIBUTES


def test_no_other_module_names_an_algorithm():
    named_by_file = {}
    for folder in ("rapid", "reports", "performance"):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if not name.startswith("rapid/algorithms/"):
                names = {
                    text
                    for text, is_algorithm in list_literals(ast.parse(path.read_text()))
                    if is_algorithm
                }
                if names := names - ALLOWED.get(name, set()):
                    named_by_file[name] = names
    assert not named_by_file


def test_no_rule_names_an_algorithm():
    quoted = re.compile(rf"[\"']({'|'.join(ALGORITHMS)})[\"']|rapid-H")
    rules = [ROOT / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk")]
    assert not [path.name for path in rules if quoted.search(path.read_text())]
