"""How the files that pass between stages are read and written: rows of JSON lines, JSON, text."""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
)

from rapid.artifacts.text import shown

Row = TypeVar("Row", bound=BaseModel)
GZIP_MAGIC = b"\x1f\x8b"


class Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class BadInput(ValueError):
    """What somebody gave cannot be used. The message says what, where, and what to do."""

    def __init__(self, message: str):
        super().__init__(shown(message))


class BadRow(BadInput):
    """A line of a JSON-lines file is not the record that it should be."""


def read_jsonl(path: Path | str, row_type: type[Row]) -> Iterator[Row]:
    """Yield the rows of a JSON-lines file, plain or gzip.

    Raises:
        BadRow: with the file, the line number and what is wrong with it.
    """
    for _, row in numbered_rows(path, row_type):
        yield row


def numbered_rows(
    path: Path | str, row_type: type[Row], parse: Callable[[bytes], Row] | None = None
) -> Iterator[tuple[int, Row]]:
    """Yield rows as `read_jsonl` does, each with its line number.

    Args:
        parse: reads a line, if it is not the row's own JSON.
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
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the line"
            raise BadRow(f"{path}:{number}: {field}: {first['msg']}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadRow(f"{path}:{number + 1}: not readable as gzip: {error}") from None


def write_jsonl(path: Path | str, rows: Iterable[BaseModel]) -> None:
    """Write rows as JSON lines, all or nothing."""
    write_text(path, "".join(row.model_dump_json() + "\n" for row in rows))


def write_json(path: Path | str, value: BaseModel | dict) -> None:
    """Write one JSON document, indented, all or nothing."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path | str, text: str) -> None:
    """Write a file through a temporary neighbour, so that no reader sees half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
