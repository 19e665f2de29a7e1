"""A CSV file of runs: what is read, and which values are invalid."""

import pytest

from rapid.artifacts.files import BadFile
from reports.imported import table
from tests.checkout import ROOT
from tests.reports.imported.conftest import LINE

SETTINGS = {"problems": "40", "samples": "8", "temperature": "0.7", "top_p": "1"}


def read_errors(file) -> list[str]:
    """Return the lines of the error, without the name of the file."""
    with pytest.raises(BadFile) as error:
        table.read_table(file)
    return [line.removeprefix(f"{file}:") for line in str(error.value).splitlines()]


def test_values_are_numbers_and_texts_and_empty_ones_are_left_out(write_csv):
    line = {"pass@16": "1e-1", "staleness": ".5", "hardware": "4 x H100", "commit": "", **SETTINGS}
    ((number, values),) = table.read_table(write_csv(line | {"samples": "16"}))
    assert number == 2
    assert values == {
        "benchmark": "math", "model": "m", "algorithm": "pg", "seed": 1, "runtime": 60.0,
        "pass@1": 0.5, "pass@16": 0.1, "staleness": 0.5, "hardware": "4 x H100", "problems": 40,
        "samples": 16, "temperature": 0.7, "top_p": 1.0,
    }  # fmt: skip


def test_files_of_spreadsheets_are_read(tmp_path):
    """With a byte order mark, line ends of any system, spaces, and lines without values."""
    lines = [",".join(LINE), "", " , ,,,,", ", ".join(LINE.values()), ""]
    for end in ("\n", "\r\n", "\r"):
        file = tmp_path / "excel.csv"
        file.write_bytes(b"\xef\xbb\xbf" + end.join(lines).encode())
        assert [(line, values["seed"]) for line, values in table.read_table(file)] == [(4, 1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmark": "maths"}, "benchmark: 'maths' is invalid: must be one of mbpp_plus, math, minif2f; did you mean math?"),
        ({"benchmark": ""}, "benchmark: is empty; write mbpp_plus, math or minif2f"),
        ({"model": "模"}, "model: '模' is invalid: has characters that TeX's fonts lack: 模"),
        ({"model": "m" * 101}, "is invalid: has 101 characters; write at most 100"),
        ({"algorithm": "GRPO"}, "did you mean grpo? (also allowed: base, and names that resemble no algorithm of the project)"),
        ({"algorithm": "sft,eta=4"}, "is invalid: sft has no variants (also allowed: base, "),
        ({"algorithm": "RAPID (H=4)"}, "algorithm: 'RAPID (H=4)' is invalid: must be one of sft"),
        ({"algorithm": "rapid"}, "did you mean rapid-H4?"),
        ({"algorithm": "rapid-H4,etas=4"}, "did you mean eta?"),
        ({"algorithm": "Base"}, "algorithm: 'Base' is invalid: must be one of "),
        ({"seed": "1.5"}, "seed: '1.5' is invalid: must be a whole number from 0 to 2147483647"),
        ({"seed": "-1"}, "seed: '-1' is invalid: "),
        ({"runtime": "-3"}, "runtime: '-3' is invalid: must be a number above 0 (with a point, not a comma, before decimals)"),
        ({"runtime": "12 min"}, "runtime: '12 min' is invalid: "),
        ({"runtime": "1_000"}, "runtime: '1_000' is invalid: "),
        ({"runtime": "1,5"}, "runtime: '1,5' is invalid: "),
        ({"runtime": "NaN"}, "runtime: 'NaN' is invalid: "),
        ({"runtime": "1e999"}, "runtime: '1e999' is invalid: "),
        ({"runtime": "", "pass@1": ""}, "runtime: is empty, and so is pass@k; write a value in one of them"),
        ({"algorithm": "base"}, "runtime: 60.0 is invalid: must be empty, because base is not trained"),
        ({"pass@1": "93.4"}, "pass@1: '93.4' is invalid: must be a number from 0 to 1 (with a point, not a comma, before decimals); did you mean 0.934?"),
        ({"pass@1": "93.4%"}, "did you mean 0.934?"),
        ({"pass@8": "120"}, "pass@8: '120' is invalid: must be a number from 0 to 1 (with a point, not a comma, before decimals)"),
        ({"clip_fraction": "5"}, "did you mean 0.05?"),
        ({"staleness": "-0.1"}, "staleness: '-0.1' is invalid: must be a number of at least 0 (with a point, not a comma, before decimals)"),
        ({"source": "s" * 41}, "source: "),
        ({"problems": "0", "samples": "8", "temperature": "1", "top_p": "1"}, "problems: '0' is invalid: must be a whole number of at least 1"),
        (SETTINGS | {"top_p": "2"}, "top_p: '2' is invalid: must be a number above 0 and at most 1 (with a point, not a comma, before decimals)"),
        ({"problems": "40", "samples": "8"}, "temperature: is empty; write all of problems, samples, temperature, top_p, or none of them"),
        (SETTINGS | {"pass@16": "0.5"}, "samples: 8 is invalid: must be at least 16, as there is a pass@16"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_named_with_its_line_and_the_reason(write_csv, change, message):
    good = {"seed": "7"} | ({"pass@16": ""} if "pass@16" in change else {})
    (line,) = read_errors(write_csv(good, change))
    assert line.startswith("3: ")
    assert message in line


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["1: is empty; write a line with the names of columns, and a line for each run"]),
        (",".join(LINE), [" has no runs below the names of the columns"]),
        ("a;b;c\n1;2;3", ["1: columns are not separated by commas; use commas, and decimal points in numbers"]),
        ("benchmark,seeds,seed,seed,runtime,algorithm", [
            "1: seeds: is not a column; the columns are benchmark, ", "1: seed: two columns have this name; remove one",
            "1: model: is missing", "1: pass@1: is missing; write this column, or pass@k with another k",
        ]),
        (f"{','.join(LINE)}\nmath,m", ["2: has 2 values for 6 columns"]),
        (f'{",".join(LINE)}\n"math', ["2: is not CSV: unexpected end of data"]),
    ],
)  # fmt: skip
def test_a_file_without_the_columns_is_rejected(tmp_path, text, messages):
    file = tmp_path / "runs.csv"
    file.write_text(text)
    lines = read_errors(file)
    assert len(lines) == len(messages)
    assert all(line.startswith(message) for line, message in zip(lines, messages, strict=True))


def test_an_unreadable_file_is_rejected(tmp_path):
    latin = tmp_path / "latin.csv"
    latin.write_bytes("é".encode("latin-1"))
    assert " is not valid UTF-8" in read_errors(latin)[0]
    assert read_errors(tmp_path / "nowhere.csv")[0].endswith(
        "cannot be read: No such file or directory"
    )


def test_all_wrong_values_are_listed_up_to_twenty(write_csv):
    lines = read_errors(write_csv(*({"seed": "x", "runtime": "y"} for _ in range(12))))
    assert [line.split(":")[:2] for line in lines[:2]] == [["2", " seed"], ["2", " runtime"]]
    assert (len(lines), lines[-1]) == (21, "... and 4 more")


def test_other_algorithms_and_variants_are_allowed(write_csv):
    names = ["base", "rapid-H4,eta=4", "Ours", "our GRPO, lr 1e-4", "[Ours] 50 % $x_1$", "grpo2"]
    lines = ({"algorithm": name, "runtime": "" if name == "base" else "1"} for name in names)
    read = table.read_table(write_csv(*lines))
    assert [values["algorithm"] for _, values in read] == names


def test_the_help_names_every_column():
    assert all(f"{name} (" in table.describe_columns() for name in table.COLUMNS)


def test_the_page_has_every_column():
    page = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    rows = [f"| `{name}` | {column.description} |" for name, column in table.COLUMNS.items()]
    assert not [row for row in rows if row not in page.replace("\\|", "|")]
