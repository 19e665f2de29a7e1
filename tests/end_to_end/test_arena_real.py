"""The real arena's commands, with its quick form: a tiny model, and no vLLM."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rapid.config.params import read
from tests.arena_records import compute_end_points_of_fields, read_blocks
from tests.checkout import ROOT, copy_checkout
from tests.recompute_arena import compare_record, list_differing
from tests.subprocesses import ACTIVATED

NAME = "arena-real-quick"
FOLDER = Path("experiments", NAME)


def run_make(checkout: Path) -> str:
    """Run the quick form with this environment; return what is printed."""
    command = ["make", "-o", "setup", "ACTIVATE=", "arena-real", "ARENA=--quick"]
    ended = subprocess.run(
        command, cwd=checkout, env={**os.environ, **ACTIVATED}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-8000:]
    return ended.stdout


@pytest.mark.slow
def test_quick_form_runs_records_and_resumes(tmp_path):
    copy_checkout(tmp_path)
    printed = run_make(tmp_path)
    assert "RAPID (H=8) sooner than PG" in printed
    made = tmp_path / FOLDER
    page = (made / "reports/arena/report.html").read_text(encoding="utf-8")
    examples = page.partition('<section id="examples">')[2].partition("</section>")[0]
    assert examples.count("<figure") == 10 and examples.count("<pre>") == 40
    weights = {path.parents[1].name for path in made.glob("runs/*/*/*/*/model/*.safetensors")}
    runs = {path.name for path in made.glob("runs/*/*/*/*/")}
    assert len(runs) == 3 and weights == {"seed1"}  # only the start has kept its model
    differing, count = list_differing_end_points(tmp_path)
    assert differing == [] and count == 5 * 3 * 6

    archives = {path.name: path.read_bytes() for path in made.glob("*.tar*")}
    assert len(archives) == 5
    for path in made.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    again = run_make(tmp_path)
    assert "] train" not in again and "] evaluate" not in again
    assert {path.name: path.read_bytes() for path in made.glob("*.tar*")} == archives


def list_differing_end_points(checkout: Path) -> tuple[list[str], int]:
    """Recompute the end points of all runs without the code of the reports.

    Three seeds are too few for the intervals of the tables.
    """
    files = ("params.yaml", "experiments/arena-real.yaml", f"experiments/{NAME}.yaml")
    fields = read(*(ROOT / file for file in files))["arena"]["fields"]
    folder = checkout / FOLDER
    points = compute_end_points_of_fields(read_blocks(folder, NAME), fields)
    comparisons = [*compare_record(folder, points, NAME)]
    return list_differing(comparisons), len(comparisons)
