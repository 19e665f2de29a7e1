"""Reads runs from a CSV file with a line for each run, and declares the columns of such a file.

An error message lists the wrong values of a file. A byte order mark and the line ends of any system
are accepted. A file with semicolons is rejected, because its numbers may have decimal commas.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.variant_names import parse_variant_name
from rapid.artifacts.files import BadFile
from rapid.benchmarks import BENCHMARKS
from rapid.config.params_schema import BASE
from rapid.settings import LARGEST, describe_invalid
from rapid.text import join_words, suggest_name
from reports.render.tex import list_unprintable

PASS_AT = re.compile(r"pass@([1-9][0-9]{0,5})")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MAX_ERRORS = 20  # largest number of errors that a message lists


class InvalidValue(ValueError):
    """A value that its column may not have. The message has the reason."""


def _parse_number(
    text: str,
    low: float = 0,
    high: float = math.inf,
    is_exclusive: bool = False,
    is_integer: bool = False,
) -> float:
    """Return a finite number from `low` to `high`; with `is_exclusive`, greater than `low`."""
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    is_within = low < value <= high if is_exclusive else low <= value <= high
    if not is_within or math.isinf(value) or (is_integer and value % 1):
        kind = "whole number" if is_integer else "number"
        has_limit = high < math.inf
        if is_exclusive:
            bounds = f"above {low:g}" + (f" and at most {high:.10g}" if has_limit else "")
        else:
            bounds = f"from {low:g} to {high:.10g}" if has_limit else f"of at least {low:g}"
        separator = "" if is_integer else " (with a point, not a comma, before decimals)"
        raise InvalidValue(f"must be a {kind} {bounds}{separator}")
    return int(value) if is_integer else value


def _parse_share(text: str) -> float:
    try:
        return _parse_number(text, high=1)
    except InvalidValue as error:
        percent = text.removesuffix("%").strip()
        if NUMBER.fullmatch(percent) and 1 < float(percent) <= 100:
            raise InvalidValue(f"{error}; did you mean {float(percent) / 100:.12g}?") from None
        raise


def _parse_text(text: str, longest: int = 100) -> str:
    """Return a text that all formats of a report can print."""
    if unprintable := list_unprintable(text):
        raise InvalidValue(f"has characters that TeX's fonts lack: {' '.join(unprintable)}")
    if len(text) > longest:
        raise InvalidValue(f"has {len(text)} characters; write at most {longest}")
    return text


def _parse_benchmark(text: str) -> str:
    if text not in BENCHMARKS:
        names = f"{', '.join(BENCHMARKS)}{suggest_name(text, BENCHMARKS)}"
        raise InvalidValue(f"must be one of {names}")
    return text


def _parse_algorithm(text: str) -> str:
    """Return the project's name of an algorithm, or any other name.

    A different spelling of a name in the project, such as "Rapid_H4", is rejected.
    """
    spelling, *spellings = (
        re.sub(r"[\W_]", "", name).lower()
        for name in (text, BASE, *(n for a in ALGORITHMS.values() for n in (a.name, a.label)))
    )
    is_similar = re.fullmatch(rf"({'|'.join(spellings)})(h\d+)?", spelling)
    if is_similar or any(algorithm.matches_name(text) for algorithm in ALGORITHMS.values()):
        try:
            return text if text == BASE else parse_variant_name(text).name
        except ValueError as error:
            others = f"{BASE}, and names that resemble no algorithm of the project"
            raise InvalidValue(f"{error} (also allowed: {others})") from None
    return _parse_text(text)


class CsvColumn(NamedTuple):
    """A column of a file: a description of its values, and the function that parses a value."""

    description: str
    parse: Callable[[str], Any]


_parse_count = partial(_parse_number, low=1, is_integer=True)
ACCURACY = CsvColumn("accuracy, a share from 0 to 1", _parse_share)
# `describe_columns` needs this order: those of `REQUIRED`, pass@1, optional columns.
COLUMNS = {
    "benchmark": CsvColumn(join_words([*BENCHMARKS], "or"), _parse_benchmark),
    "model": CsvColumn("the model's name, as tables print it", _parse_text),
    "algorithm": CsvColumn(
        f"a name as in params.yaml; {BASE} is the model before training; any other name is printed "
        "as it stands",
        _parse_algorithm,
    ),
    "seed": CsvColumn("a whole number", partial(_parse_number, high=LARGEST, is_integer=True)),
    "runtime": CsvColumn("seconds of the training loop", partial(_parse_number, is_exclusive=True)),
    "pass@1": ACCURACY,
    "staleness": CsvColumn(
        "mean of |log min(w, eta)| in nats; w is a completion's importance weight, eta its bound",
        _parse_number,
    ),
    "clip_fraction": CsvColumn("share of importance weights above eta, from 0 to 1", _parse_share),
    "peak_memory_mb": CsvColumn("peak memory of training, in 1e6 bytes", _parse_number),
    "completion_length": CsvColumn("mean tokens per completion, in training", _parse_number),
    "hardware": CsvColumn("GPUs and their number", _parse_text),
    "commit": CsvColumn("commit of the code", _parse_text),
    "source": CsvColumn(
        "where the problems come from, in a word or two, such as made or published",
        partial(_parse_text, longest=40),
    ),
    "problems": CsvColumn("number of test problems", _parse_count),
    "samples": CsvColumn("number of completions per test problem", _parse_count),
    "temperature": CsvColumn("temperature at which these completions were sampled", _parse_number),
    "top_p": CsvColumn(
        "top-p with which these completions were sampled",
        partial(_parse_number, high=1, is_exclusive=True),
    ),
}
RUN_COLUMNS = ("benchmark", "model", "algorithm", "seed")  # identify a run, and are never empty
REQUIRED = (*RUN_COLUMNS, "runtime")  # a file has these columns, and at least one pass@k
SETTINGS = ("problems", "samples", "temperature", "top_p")  # a run has all of these or none


def describe_columns() -> str:
    """Return a sentence that names and explains all columns, for the command's help."""
    columns = [f"{name} ({column.description})" for name, column in COLUMNS.items()]
    needed = len(REQUIRED)
    return (
        f"A CSV has a line for each run and the columns {', '.join(columns[:needed])}, and one or "
        f"more of {columns[needed]}, pass@8, ... It may have {', '.join(columns[needed + 1 :])}."
    )


def read_table(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the runs in a CSV file: the number of the line, and its values that are not empty.

    Raises:
        BadFile: with a line for each invalid value: file, line, column, value, and the reason.
    """
    lines = _split_lines(file)
    number, header = next(lines, (1, [""]))
    runs, errors = [], [f"{file}:{number}: {error}" for error in _check_header(header)]
    for number, cells in lines if not errors else ():
        values, line_errors = _read_values(header, cells)
        runs.append((number, values))
        errors += [f"{file}:{number}: {error}" for error in line_errors]
    raise_errors(errors)
    if not runs:
        raise BadFile(f"{file}: has no runs below the names of the columns")
    return runs


def raise_errors(errors: list[str]) -> None:
    """Raise a BadFile with the first `MAX_ERRORS` errors, if there are any."""
    errors = list(dict.fromkeys(errors))
    if errors:
        rest = [f"... and {len(errors) - MAX_ERRORS} more"] if len(errors) > MAX_ERRORS else []
        raise BadFile("\n".join([*errors[:MAX_ERRORS], *rest]))


def _split_lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line that is not empty."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{file}: is not valid UTF-8, the encoding of CSV files: {error}") from None
    except OSError as error:
        raise BadFile(f"{file}: cannot be read: {error.strerror}") from None
    reader, number = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                yield number, list(map(str.strip, cells))
            number = reader.line_num + 1
    except csv.Error as error:
        raise BadFile(f"{file}:{number}: is not CSV: {error}") from None


def _check_header(header: list[str]) -> Iterator[str]:
    """Yield the errors in the names of the columns."""
    if header == [""]:
        yield "is empty; write a line with the names of columns, and a line for each run"
    elif len(header) == 1 and re.search(r"[;\t]", header[0]):
        yield "columns are not separated by commas; use commas, and decimal points in numbers"
    else:
        for position, name in enumerate(header):
            if name not in COLUMNS and not PASS_AT.fullmatch(name):
                yield (
                    f"{name}: is not a column; the columns are {', '.join(COLUMNS)}, pass@8, ..."
                    f"{suggest_name(name, COLUMNS)}"
                )
            elif name in header[:position]:
                yield f"{name}: two columns have this name; remove one"
        yield from (f"{name}: is missing" for name in REQUIRED if name not in header)
        if not any(map(PASS_AT.fullmatch, header)):
            yield "pass@1: is missing; write this column, or pass@k with another k"


def _read_values(header: list[str], cells: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a line by column, and the errors in them."""
    if len(cells) != len(header):
        return {}, [f"has {len(cells)} values for {len(header)} columns"]
    values, errors = {}, []
    for name, text in zip(header, cells, strict=True):
        column = COLUMNS.get(name, ACCURACY)
        if not text:
            errors += (
                [f"{name}: is empty; write {column.description}"] if name in RUN_COLUMNS else []
            )
            continue
        try:
            values[name] = column.parse(text)
        except InvalidValue as error:
            errors.append(describe_invalid(name, text, str(error)))
    return values, errors or list(_check_combination(values))


def _check_combination(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors in the combination of the values in a line."""
    ks = [int(match[1]) for match in map(PASS_AT.fullmatch, values) if match]
    if values["algorithm"] == BASE and "runtime" in values:
        reason = f"must be empty, because {BASE} is not trained"
        yield describe_invalid("runtime", values["runtime"], reason)
    if not ks and "runtime" not in values:
        yield "runtime: is empty, and so is pass@k; write a value in one of them"
    unset = [name for name in SETTINGS if name not in values]
    if 0 < len(unset) < len(SETTINGS):
        yield f"{unset[0]}: is empty; write all of {', '.join(SETTINGS)}, or none of them"
    if not unset and ks and max(ks) > values["samples"]:
        reason = f"must be at least {max(ks)}, as there is a pass@{max(ks)}"
        yield describe_invalid("samples", values["samples"], reason)
