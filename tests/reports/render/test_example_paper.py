"""reports/example-paper.tex: two experiments in one paper, with every TeX engine and in two styles."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rapid.config.params import load
from reports.__main__ import main
from tests.conftest import ROOT

ENGINES = "pdflatex", "xelatex", "lualatex"
DEFINITIONS = r"\def\first{first}\def\second{second}\def\secondname{second}"


def compile_document(engine: str, source: str, folder: Path) -> str:
    """Compile TeX source in a folder, and return the log."""
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "-jobname=paper", source]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=240)
    return (folder / "paper.log").read_text(errors="replace")


@pytest.fixture
def engine(request, tmp_path) -> str:
    """Return the name of a TeX engine that is installed with its fonts."""
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    folder = tmp_path / "engine"
    folder.mkdir()
    document = r"\documentclass{article}\begin{document}a\end{document}"
    try:
        log = compile_document(name, document, folder)
        has_fonts = "undefined" not in log
    except subprocess.CalledProcessError:
        has_fonts = False
    if not has_fonts:
        pytest.skip(f"{name} is installed without its fonts")
    return name


@pytest.mark.latex
@pytest.mark.slow
@pytest.mark.parametrize(("style", "options"), [("iclr", ""), ("icml", r"\def\twocolumnpaper{}")])
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_example_paper_compiles_without_warnings(values, runs, engine, style, options):
    runs.write_all(load(values))
    for folder, name in (("first", None), ("second", "second")):
        config = json.dumps(values | {"name": name, "report": {"style": style}})
        output = runs.root / folder
        files = ["--output", str(output / "tables.tex"), "--figures", str(output / "figures")]
        assert main(["--config", config, "--root", str(runs.root), *files]) == 0
    shutil.copy(ROOT / "reports/example-paper.tex", runs.root)
    source = options + DEFINITIONS + r"\input{example-paper}"
    compile_document(engine, source, runs.root)
    log = compile_document(engine, source, runs.root)  # the second run resolves references
    for warning in ("Overfull", "Float too large", "undefined", "multiply defined"):
        assert warning not in log
