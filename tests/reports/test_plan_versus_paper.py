"""Planned runtimes beside the paper's, from estimates that are known."""

import pytest

from reports import plan_versus_paper
from tests.conftest import ROOT

SECONDS = {"pg": 7200, "grpo": 14400, "rapid-H4": 3600}  # the others take 1800
MATH = [  # ours to pg, the paper's to pg, and what the one lacks of the other
    ["pg", "2h00m", "4h49m", "1.00", "1.00"],
    ["grpo", "4h00m", "5h36m", "2.00", "1.16", "+72%"],  # 336 / 289 minutes
    ["dapo", "30.0m", "4h47m", "0.25", "0.99", "-75%"],
    ["rapid-H2", "30.0m", "4h47m", "0.25", "0.99", "-75%"],
    ["rapid-H4", "1h00m", "4h14m", "0.50", "0.88", "-43%"],
    ["rapid-H8", "30.0m", "4h29m", "0.25", "0.93", "-73%"],
    ["rapid-H16", "30.0m", "4h08m", "0.25", "0.86", "-71%"],
]


@pytest.mark.parametrize(
    ("more", "told"), [([], {}), (["--completion-length", "0"], {"length": 0.0})]
)
def test_ratios_to_pg_are_held_against_the_papers(monkeypatch, capsys, more, told):
    asked = []

    class Known:
        def __init__(self, params, machine, given):
            asked.append(given)

        def runtime(self, spec):
            return SECONDS.get(spec.run.algorithm, 1800)

    monkeypatch.setattr(plan_versus_paper, "Estimator", Known)
    files = [str(ROOT / name) for name in ("params.yaml", "experiments/paper.yaml")]
    plan_versus_paper.main(["--configfile", *files, *more])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "benchmark  algorithm  planned  paper  to pg  paper  deviation"
    assert [line.split()[1:] for line in lines if line.startswith("math ")] == MATH
    assert asked == [{"signal": 1.0, "rewarded": 1.0, **told}]
