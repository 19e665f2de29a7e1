"""Reads parameters from YAML files, or from JSON texts that a workflow passes to its jobs."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from rapid.artifacts.files import BadInput

MAX_DEPTH = 9  # levels of nested keys in which `locate_key` searches; params.yaml has fewer
TEMPLATE_KEY = "__use_yte__"  # Snakemake evaluates configuration files with this key as templates

DEFAULT_FILE = "params.yaml"


class BadParams(BadInput):
    """Parameters that cannot be read or used. The message says which, where they are, and why."""


class UniqueKeyLoader(yaml.SafeLoader):
    """Reads YAML; duplicate keys and templates are errors.

    PyYAML would silently use the last of duplicate keys. Only Snakemake evaluates templates, so
    other readers of the file would see different values.
    """

    def compose_mapping_node(self, anchor):
        node, seen = super().compose_mapping_node(anchor), set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            problem = "is in the file twice; remove one" if (key.tag, key.value) in seen else ""
            if key.value == TEMPLATE_KEY:
                problem = "templates are not supported; write the values themselves"
            if problem:
                problem = f"{key.value}: {problem}"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return node


def read(*sources: Path | str) -> dict:
    """Read and merge YAML files or JSON texts; later ones override earlier ones key by key.

    `snakemake --configfile` merges in the same way.

    Raises:
        BadParams: a source cannot be read or parsed. The message has the file and, if known, the
            line.
    """
    merged: dict = {}
    for source in sources:
        values = _parse_file(source, yaml.load)
        if not isinstance(values, dict | None):
            raise BadParams(
                f"{source}: must contain keys with values, but contains a {type(values).__name__}"
            )
        _merge_into(merged, values or {})
    return merged


def order_keys(values: dict, *sources: Path | str) -> dict:
    """Return values that Snakemake merged from these files and from --config.

    The keys have the order of the files: Snakemake puts the keys of an overlay first if params.yaml
    is not among its --configfile, and the order of benchmarks decides the tokenizer, and so all
    results. Snakemake reads all values in a nested --config as texts. `null` becomes None again;
    pydantic converts numbers.
    """
    ordered = read(*sources)
    _merge_into(ordered, _replace_null(values))
    return ordered


def _replace_null(value: Any) -> Any:
    """Return a value with None in place of each text `null` in it."""
    if isinstance(value, dict):
        return {key: _replace_null(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_null(item) for item in value]
    return None if value == "null" else value


def put_default_file_first(files: Iterable[Path | str]) -> list[Path | str]:
    """Return params.yaml, if this folder has one, and then these files, as Snakemake reads them.

    So an overlay alone is enough as `--configfile`.
    """
    return [*filter(os.path.exists, [DEFAULT_FILE]), *files]


def is_json_text(source: Path | str) -> bool:
    """Return whether a source is a JSON text, and not the path of a file."""
    return str(source).lstrip().startswith("{")


def _parse_file(source: Path | str, parse: Callable) -> Any:
    """Parse a file with `parse` (yaml.load or yaml.compose), or a JSON text."""
    is_json = is_json_text(source)
    name = "JSON text" if is_json else source
    try:
        if is_json:
            return json.loads(source)
        with open(source, encoding="utf-8") as stream:
            return parse(stream, UniqueKeyLoader)
    except OSError as error:
        hint = ". Change to the folder of your clone" if str(name) == "params.yaml" else ""
        raise BadParams(f"{name}: cannot be read: {error.strerror}{hint}") from None
    except yaml.MarkedYAMLError as error:
        raise BadParams(f"{name}:{error.problem_mark.line + 1}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadParams(f"{name}: cannot be parsed: {error}") from None


def _merge_into(base: dict, overlay: dict) -> None:
    """Set each key of `overlay` in `base`, recursively in nested dicts."""
    for key, value in overlay.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge_into(base[key], value)
        else:
            base[key] = value


def locate_key(key: str, values: dict, sources: tuple[Path | str, ...]) -> str:
    """Return FILE:LINE of a dotted key, in the last file that sets it.

    If the value is another one than in the files, it was set by Snakemake's option `--config`, and
    this returns "--config". If no file sets the key, this returns the line of its nearest parent;
    "params" if there is no parent.
    """
    with suppress(RecursionError):  # YAML aliases can make a value contain itself
        used, written = look_up(key, values), look_up(key, read(*sources))
        is_nan = str(used) == str(written) == "nan"  # which differs from itself
        if sources and used != written and not is_nan:
            return "--config"
    files = [source for source in reversed(sources) if not is_json_text(source)]
    lines = [(file, dict(_walk_lines(_parse_file(file, yaml.compose)))) for file in files]
    while key:
        for file, line_numbers in lines:
            if key in line_numbers:
                return f"{file}:{line_numbers[key]}"
        key = key.rpartition(".")[0]
    return "params"


def look_up(key: str, values: Any) -> Any:
    """Return the value of a dotted key; None if there is none."""
    for part in key.split("."):
        if isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        else:
            values = values.get(part) if isinstance(values, dict) else None
    return values


def _walk_lines(node: yaml.Node | None, key: str = "") -> Iterator[tuple[str, int]]:
    """Yield each dotted key below a node with its line.

    The depth is limited, because YAML aliases can make a node contain itself.
    """
    if isinstance(node, yaml.MappingNode) and key.count(".") < MAX_DEPTH:
        for name, value in node.value:
            inner_key = f"{key}.{name.value}".removeprefix(".")
            yield inner_key, name.start_mark.line + 1
            yield from _walk_lines(value, inner_key)
