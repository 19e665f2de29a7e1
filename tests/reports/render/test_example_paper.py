"""reports/example-paper.tex: two experiments in one paper, with every TeX engine and in two styles."""

import json
import shutil
import subprocess

import pytest

from rapid.config.params import load
from reports.__main__ import main
from tests.conftest import ROOT

ENGINES = [
    pytest.param(
        name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} not installed")
    )
    for name in ("pdflatex", "xelatex", "lualatex")
]
DEFINITIONS = r"\def\first{first}\def\second{second}\def\secondname{second}"


@pytest.mark.latex
@pytest.mark.slow
@pytest.mark.parametrize(("style", "options"), [("iclr", ""), ("icml", r"\def\twocolumnpaper{}")])
@pytest.mark.parametrize("engine", ENGINES)
def test_example_paper_compiles_without_warnings(values, runs, engine, style, options):
    runs.write_all(load(values))
    for folder, name in (("first", None), ("second", "second")):
        config = json.dumps(values | {"name": name, "report": {"style": style}})
        output = runs.root / folder
        files = ["--output", str(output / "tables.tex"), "--figures", str(output / "figures")]
        assert main(["--config", config, "--root", str(runs.root), *files]) == 0
    shutil.copy(ROOT / "reports/example-paper.tex", runs.root)
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "-jobname=paper"]
    for _ in range(2):  # the second run resolves references
        subprocess.run(
            [*command, options + DEFINITIONS + r"\input{example-paper}"],
            cwd=runs.root,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=240,
        )
    log = (runs.root / "paper.log").read_text(errors="replace")
    for warning in ("Overfull", "Float too large", "undefined", "multiply defined"):
        assert warning not in log
