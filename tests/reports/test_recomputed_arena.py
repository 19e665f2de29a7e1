"""The arena's recorded tables against an independent recomputation from the raw record."""

import shutil

import pytest

from reports import pooled
from tests import recompute_arena
from tests.conftest import ROOT

# File -> a figure in it, and the same with another digit.
CHANGES = {
    "arena-results.csv": ("7.03542", "7.03543"),
    "arena-tables.txt": ("0.83 [0.70, 0.92]", "0.83 [0.70, 0.93]"),
    "arena-pooled.txt": ("+1.6 [\N{MINUS SIGN}0.1, +3.2]", "+1.6 [\N{MINUS SIGN}0.2, +3.2]"),
}


@pytest.mark.slow
def test_recomputation_finds_changed_figures_and_no_others(tmp_path):
    folder = tmp_path / "experiments"
    shutil.copytree(recompute_arena.FOLDER, folder)
    for name, (figure, changed) in CHANGES.items():
        text = (folder / name).read_text(encoding="utf-8")
        assert figure in text
        (folder / name).write_text(text.replace(figure, changed, 1), encoding="utf-8")
    differing, count = recompute_arena.compare_all(folder)
    assert len(differing) == len(CHANGES), differing
    for text, (figure, changed) in zip(differing, CHANGES.values(), strict=True):
        assert text.endswith(f"recomputed {figure}, printed {changed}")
    assert count > 9000


@pytest.mark.slow
def test_recomputation_finds_changed_figures_of_an_arena_in_blocks(tmp_path):
    folder = tmp_path / "experiments"
    shutil.copytree(recompute_arena.FOLDER, folder)
    tables = folder / "arena-minif2f-tables.txt"
    text = tables.read_text(encoding="utf-8")
    figure, changed = "0.33 [0.28, 0.37]", "0.33 [0.28, 0.38]"
    assert figure in text
    tables.write_text(text.replace(figure, changed, 1), encoding="utf-8")
    differing, count = recompute_arena.compare_blocks_of_seeds("arena-minif2f", folder)
    (line,) = differing
    assert line.endswith(f"recomputed {figure}, printed {changed}")
    assert count == 995


@pytest.mark.slow
def test_command_writes_the_recorded_tables_of_both_runs(tmp_path):
    experiments = recompute_arena.FOLDER
    arguments = ["--configfile", str(ROOT / "params.yaml"), str(experiments / "arena.yaml")]
    arguments += ["--raw", str(experiments / "arena-raw.tar.xz")]
    arguments += ["--earlier", str(experiments / "arena-results-earlier.csv")]
    assert pooled.main([*arguments, "--output", str(tmp_path / "tables.txt")]) == 0
    written = (tmp_path / "tables.txt").read_text(encoding="utf-8")
    assert written == (experiments / "arena-pooled.txt").read_text(encoding="utf-8")


def test_command_names_a_missing_archive(tmp_path, capsys):
    arguments = ["--configfile", str(ROOT / "params.yaml"), "--raw", str(tmp_path / "none.tar.xz")]
    arguments += ["--earlier", "none.csv", "--output", str(tmp_path / "tables.txt")]
    assert pooled.main(arguments) == 1
    assert "none.tar.xz" in capsys.readouterr().err


def test_command_names_a_damaged_archive(tmp_path, capsys):
    raw = tmp_path / "damaged.tar.xz"
    raw.write_bytes((recompute_arena.FOLDER / "arena-raw.tar.xz").read_bytes()[:5000])
    arguments = ["--configfile", str(ROOT / "params.yaml"), "--raw", str(raw)]
    arguments += ["--earlier", "none.csv", "--output", str(tmp_path / "tables.txt")]
    assert pooled.main(arguments) == 1
    assert "damaged.tar.xz: is damaged, or is not a tar archive" in capsys.readouterr().err
