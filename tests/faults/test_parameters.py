"""Parameters that cannot be used are refused with file, line and key, before any job starts."""

import copy
import random
from itertools import product

import pytest
import yaml

from rapid import cli
from rapid.config.params import load, load_files, read
from rapid.config.sources import BadParams
from reports import experiment
from reports.__main__ import main as make_report
from tests.conftest import ROOT, load_default_values
from tests.faults.conftest import make_fault_cases

DEFAULT = load_default_values()
NOT_FINITE = [float("inf"), -float("inf"), float("nan"), "inf", "NaN"]


def walk_values(value, path=()):
    """Yield each path in nested values, and the value at it."""
    yield path, value
    items = enumerate(value) if isinstance(value, list) else ()
    for key, nested in value.items() if isinstance(value, dict) else items:
        yield from walk_values(nested, (*path, key))


def replace_value(path: tuple, value, params: dict = DEFAULT) -> dict:
    *outer, last = path
    values = section = copy.deepcopy(params)
    for key in outer:
        section = section[key]
    section[last] = value
    return values


def format_key(path: tuple) -> str:
    return ".".join(map(str, path))


LEAVES = dict(walk_values(DEFAULT))
NUMBERS = [path for path, value in LEAVES.items() if type(value) in (int, float)]
LISTS = {path: value[0] for path, value in LEAVES.items() if isinstance(value, list)}
KEYS = [path for path in LEAVES if path and not any(type(part) is int for part in path)]
WRONG_VALUES = {
    "parameters: infinity or NaN": [*product(NUMBERS, NOT_FINITE)],
    "parameters: true or false for a number": [*product(NUMBERS, (True, False))],
    "parameters: duplicate list item": [
        (path, [first, second])
        for path, first in LISTS.items()
        for second in (first, float(first) if type(first) is int else first)
    ],
}


@pytest.mark.parametrize("cases", make_fault_cases(WRONG_VALUES))
def test_a_wrong_value_is_refused_at_every_key(cases):
    for path, value in cases:
        with pytest.raises(BadParams) as refusal:
            load(replace_value(path, value))
        assert f"{format_key(path)}: {value!r} is invalid: " in str(refusal.value)


def write_nested_keys(path: tuple) -> list[str]:
    return [f"{'  ' * depth}{key}:" for depth, key in enumerate(path)]


@pytest.mark.fault("parameters: duplicate key", times=20)
def test_a_repeated_key_is_reported_with_its_line(tmp_path):
    file = tmp_path / "mine.yaml"
    for path in random.Random(0).sample(KEYS, 20):
        lines = write_nested_keys(path)
        file.write_text("\n".join([*lines, f"{lines[-1]} 1", ""]))
        with pytest.raises(BadParams, match="is in the file twice") as refusal:
            read(file)
        assert str(refusal.value).startswith(f"{file}:{len(path) + 1}: {path[-1]}")


@pytest.mark.fault("parameters: wrong value in an overlay", times=20)
def test_a_wrong_value_in_an_overlay_is_reported_with_its_line(tmp_path):
    file = tmp_path / "mine.yaml"
    for path in random.Random(1).sample(NUMBERS, 20):
        keys = [key for key in path if type(key) is not int]
        file.write_text("\n".join(["name: mine", *write_nested_keys(keys)]) + " -.inf\n")
        with pytest.raises(BadParams) as refusal:
            load_files(ROOT / "params.yaml", file)
        assert str(refusal.value).startswith(f"{file}:{len(keys) + 1}: {format_key(keys)}: -inf is")


ODD_VALUES = [
    None, True, -1, 0, 1.5, 10**400, 5e-324, 1e308, "", "1" * 5000, "\0", "a\nb", "\ud800", [],
    [[1]], {}, {1: 2}, {"a": {"b": 1}}, [None], b"x", {1}, *NOT_FINITE,
]  # fmt: skip


@pytest.mark.fault("parameters: value of another type", times=20)
def test_a_value_of_any_type_is_accepted_or_refused_with_messages():
    rng = random.Random(2)
    params = read(ROOT / "params.yaml", ROOT / "experiments/arena.yaml")
    for path in [path for path, _ in walk_values(params) if path]:
        try:
            load(replace_value(path, rng.choice(ODD_VALUES), params))
        except BadParams as refusal:
            assert all(": " in line for line in str(refusal).splitlines())


UNREADABLE_FILES = {
    "missing": None,
    "a list": "- 1\n",
    "a text": "rapid\n",
    "a number": "3\n",
    "cut off": "compute: [1\n",
    "no quote": 'name: "mine\n',
    "tabs": "compute:\n\tdevice: cpu\n",
    "an unknown alias": "compute: *none\n",
    "an alias of itself": "compute: &a {device: *a}\n",
    "two documents": "name: a\n---\nname: b\n",
    "code": "compute: !!python/object/apply:os.system [exit 1]\n",
    "a tag": "compute: !mine {}\n",
    "brackets without end": "a: " + "[" * 5000,
    "not UTF-8": b"\xff\xfe\0",
    "Latin-1": "name: é\n".encode("latin-1"),
    "a control character": "name: a\x01b\n",
    "NUL": "name: a\0b\n",
    "a date": "name: 2026-11-22\n",
    "an escape": '"\\e[31m": 1\n',
    "a list for a key": "? [1]\n: 1\n",
    "an unknown key": "nothing: known\n",
}


@pytest.mark.fault("parameters: unreadable file", times=len(UNREADABLE_FILES))
def test_an_unreadable_file_is_reported_with_its_name(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    for name, content in UNREADABLE_FILES.items():
        if content is not None:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert cli.run(["verify", "--configfile", str(ROOT / "params.yaml"), str(file)]) == 2, name
        message = capsys.readouterr().err
        assert message.startswith(f"rapid verify: {file}:"), message
        assert "\x1b" not in message


@pytest.mark.fault("parameters: wrong value in each command", times=4)
@pytest.mark.parametrize("value", [float("inf"), True, 0, "two", None])
def test_every_command_refuses_a_wrong_value_with_file_and_key(value, tmp_path, capsys):
    """The file has long lines, like the JSON in which Snakemake passes parameters to jobs."""
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(replace_value(("rapid", "eta"), value), width=1e9))
    commands = [
        lambda: cli.run(["plan", "--configfile", str(file)]),
        lambda: cli.run(["preflight", "--configfile", str(file)]),
        lambda: make_report(["--config", str(file), "--text"]),
        lambda: 2 * experiment.main(["--config", str(file), "--out", str(tmp_path / "out")]),
    ]
    for run_command in commands:
        assert run_command() == 2
        message = capsys.readouterr().err
        assert f"{file}:" in message and "rapid.eta: " in message
    assert not (tmp_path / "out").exists()
