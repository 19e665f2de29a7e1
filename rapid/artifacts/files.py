"""Reads and writes the files that stages exchange: JSON lines, JSON documents, text."""

import gzip
import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rapid.text import escape_control_chars

Row = TypeVar("Row", bound=BaseModel)
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
GZIP_MAGIC = b"\x1f\x8b"  # first bytes of a gzip file
ROUNDING = 1e-6  # tolerance of consistency checks, such as a mean compared with its recomputation


class Record(BaseModel):
    """Base class of the rows and documents that stages write. Unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def _check_share(value: float | None) -> float | None:
    if value is not None and math.isfinite(value) and not -ROUNDING <= value <= 1 + ROUNDING:
        raise ValueError(f"{value} is not between 0 and 1")
    return value


# A share of a whole, from 0 to 1, or None if it is undefined. NaN and infinity are allowed, because
# training may produce them; reports show them as missing.
OptionalShare = Annotated[float | None, AfterValidator(_check_share)]


class BadInput(ValueError):
    """A user's input is wrong. The message says what is wrong, where, and what to do."""

    def __init__(self, message: str):
        super().__init__(escape_control_chars(message))


class BadFile(BadInput):
    """A file is damaged or does not match its schema. The message begins with its path."""


def read_json(path: Path | str, record_type: type[Row]) -> Row:
    """Return the record in a JSON file.

    Raises:
        BadFile: the file cannot be read, or does not match the record's schema.
    """
    try:
        return record_type.model_validate_json(Path(path).read_bytes())
    except ValidationError as error:
        raise BadFile(f"{path}: {describe_first_error(error, 'the document')}") from None
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror}") from None


def read_jsonl(path: Path | str, row_type: type[Row]) -> Iterator[Row]:
    """Yield the rows of a JSON-lines file, plain or gzip.

    Raises:
        BadFile: a line does not match the schema, or the gzip data is damaged. The message has
            the file, the line number and the problem.
    """
    for _, row in read_numbered_rows(path, row_type):
        yield row


def read_numbered_rows(
    path: Path | str, row_type: type[Row], parse: Callable[[bytes], Row] | None = None
) -> Iterator[tuple[int, Row]]:
    """Yield rows as `read_jsonl` does, each with its line number.

    Args:
        parse: parses a line; by default, the line is the row as JSON.
    """
    parse = parse or row_type.model_validate_json
    with open(path, "rb") as plain:
        lines = gzip.GzipFile(fileobj=plain) if plain.peek(2)[:2] == GZIP_MAGIC else plain
        number = 0
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, parse(line)
        except ValidationError as error:
            raise BadFile(f"{path}:{number}: {describe_first_error(error, 'the line')}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadFile(f"{path}:{number + 1}: not readable as gzip: {error}") from None


def describe_first_error(error: ValidationError, document: str) -> str:
    """Return the first error as "FIELD: PROBLEM".

    Args:
        document: a name for the whole document. It replaces FIELD if the error is not in a field.
    """
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or document
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"


def write_jsonl(path: Path | str, rows: Iterable[BaseModel]) -> None:
    """Write rows as JSON lines, atomically (`write_text`)."""
    write_text(path, "".join(row.model_dump_json() + "\n" for row in rows))


def write_json(path: Path | str, value: BaseModel | dict) -> None:
    """Write one JSON document, indented, atomically (`write_text`)."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path | str, text: str) -> None:
    """Write a temporary file and rename it to `path`, so that readers never see half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
