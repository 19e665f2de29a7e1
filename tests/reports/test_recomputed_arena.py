"""The arena's recorded tables against an independent recomputation from the raw record."""

import re
import shutil
import statistics
from pathlib import Path

import pytest

from reports import pooled
from tests import recompute_arena
from tests.conftest import ROOT
from tests.lost_time import judge_with_and_without_lost_time

# File -> figures in it, each with the same with another digit, in the order of the file.
CHANGES = {
    "arena-results.csv": {"7.03542": "7.03543"},
    "arena-tables.txt": {
        "0.83 [0.70, 0.92]": "0.83 [0.70, 0.93]",
        "+1.1 ± 2.0": "+1.1 ± 2.1",  # in the table of the map
    },
    "arena-pooled.txt": {"+1.6 [\N{MINUS SIGN}0.1, +3.2]": "+1.6 [\N{MINUS SIGN}0.2, +3.2]"},
}
# The first has errors clustered over skeletons; the last are in the tables of phases and profiles.
CHANGES_IN_BLOCKS = {
    "arena-minif2f": {
        "+12.0, +22.4]": "+12.0, +22.5]",
        "0.33 [0.28, 0.37]": "0.33 [0.28, 0.38]",
        "71.9%": "71.8%",
        "55.0%": "55.1%",
    },
    "arena-rivals": {
        "0.43 [0.40, 0.47]": "0.43 [0.40, 0.48]",
        "+16.9, +22.7]": "+16.9, +22.8]",
        "64.0%": "64.1%",  # in the table of the tuning
        "66.7%": "66.8%",  # in the table of time by phase
    },
}


def change_figures(file: Path, changes: dict[str, str]) -> None:
    """Replace the first occurrence of each figure in a file."""
    text = file.read_text(encoding="utf-8")
    for figure, changed in changes.items():
        assert figure in text
        text = text.replace(figure, changed, 1)
    file.write_text(text, encoding="utf-8")


def check_found(differing: list[str], changes: dict[str, str]) -> None:
    """Check that each line names a changed figure, and that there are no others."""
    assert len(differing) == len(changes), differing
    for figure, changed in changes.items():
        assert [line for line in differing if figure in line and changed in line], figure


@pytest.mark.slow
def test_recomputation_finds_changed_figures_and_no_others(tmp_path):
    folder = tmp_path / "experiments"
    shutil.copytree(recompute_arena.FOLDER, folder)
    for name, changes in CHANGES.items():
        change_figures(folder / name, changes)
    differing, count = recompute_arena.compare_all(folder)
    check_found(differing, {k: v for changes in CHANGES.values() for k, v in changes.items()})
    assert count > 9000


@pytest.mark.slow
@pytest.mark.parametrize(("arena", "numbers"), [("arena-minif2f", 1128), ("arena-rivals", 3107)])
def test_recomputation_finds_changed_figures_of_an_arena_in_blocks(arena, numbers, tmp_path):
    folder = tmp_path / "experiments"
    shutil.copytree(recompute_arena.FOLDER, folder)
    change_figures(folder / f"{arena}-tables.txt", CHANGES_IN_BLOCKS[arena])
    differing, count = recompute_arena.compare_blocks_of_seeds(arena, folder)
    check_found(differing, CHANGES_IN_BLOCKS[arena])
    assert count == numbers


@pytest.mark.slow
def test_page_states_the_time_that_runs_on_minif2f_lost():
    shares, claims = judge_with_and_without_lost_time("arena-minif2f")
    medians = {name: 100 * statistics.median(values) for (_, name), values in shares.items()}
    rapid_median = medians.pop("rapid-H8")
    low, high = min(medians.values()), max(medians.values())
    page = read_page("arena-minif2f.md")
    assert f"their core for {rapid_median:.1f} % of their time" in page
    assert f"other algorithm for {low:.1f} % to {high:.1f} %" in page
    (dapo,) = (claim for claim in claims if claim.name == "rapid-H8 and dapo-H8, by seconds")
    assert f"claim on DAPO rises from {dapo.p} to {dapo.p_without}" in page
    assert "no verdict changes" in page
    assert all(claim.verdict == claim.verdict_without for claim in claims)


@pytest.mark.slow
def test_page_states_the_time_that_runs_beside_rivals_lost():
    shares, claims = judge_with_and_without_lost_time("arena-rivals")
    largest = 100 * max(share for values in shares.values() for share in values)
    page = read_page("arena-rivals.md")
    (limit,) = re.findall(r"for its core for more than ([\d.]+) % of its time", page)
    assert float(limit) - 0.5 < largest < float(limit)
    assert "no verdict changes" in page
    assert len(claims) == 19
    assert all(claim.verdict == claim.verdict_without for claim in claims)


def read_page(name: str) -> str:
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


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
