"""Parameters that cannot be used are refused where they are written, before any job starts."""

import copy
import itertools
import random

import pytest
import yaml

from rapid import cli
from rapid.config.params import load, load_files, read
from rapid.config.sources import BadParams
from reports import experiment
from reports.__main__ import main as report
from tests.conftest import ROOT

DEFAULT = read(ROOT / "params.yaml")


def leaves(value, path=()):
    """Yield each place in nested values, and what is there."""
    yield path, value
    inside = enumerate(value) if isinstance(value, list) else ()
    for name, one in value.items() if isinstance(value, dict) else inside:
        yield from leaves(one, (*path, name))


def changed(path: tuple, value, before: dict = DEFAULT) -> dict:
    """Parameters with another value at a place."""
    *outer, last = path
    values = at = copy.deepcopy(before)
    for name in outer:
        at = at[name]
    at[last] = value
    return values


def refused(values: dict) -> str:
    with pytest.raises(BadParams) as refusal:
        load(values)
    return str(refusal.value)


def places(*kinds: type) -> list[tuple]:
    return [path for path, value in leaves(DEFAULT) if type(value) in kinds]


NUMBERS, LISTS = places(int, float), places(list)
KEYS = [path for path, _ in leaves(DEFAULT) if path and not any(type(n) is int for n in path)]
NOT_FINITE = [float("inf"), -float("inf"), float("nan"), "inf", "NaN"]


def key_of(path: tuple) -> str:
    return ".".join(map(str, path))


def refusal_of(path: tuple, value) -> str:
    return f"{key_of(path)}: {value!r} is not allowed"


@pytest.mark.fault("a parameter that is infinite or NaN", times=len(NUMBERS) * len(NOT_FINITE))
def test_a_number_is_finite():
    for path, value in itertools.product(NUMBERS, NOT_FINITE):
        assert refusal_of(path, value) in refused(changed(path, value))


@pytest.mark.fault("true or false for a number", times=2 * len(NUMBERS))
def test_true_is_no_number():
    for path, value in itertools.product(NUMBERS, (True, False)):
        assert refusal_of(path, value) in refused(changed(path, value))


@pytest.mark.fault("a list with something twice", times=2 * len(LISTS))
def test_a_list_has_nothing_twice():
    for path in LISTS:
        first = next(value for place, value in leaves(DEFAULT) if place == path)[0]
        for value in ([first, first], [first, float(first) if type(first) is int else first]):
            assert refusal_of(path, value) in refused(changed(path, value))


@pytest.mark.fault("a key given twice", times=20)
def test_a_key_is_given_once(tmp_path):
    file = tmp_path / "mine.yaml"
    for path in random.Random(0).sample(KEYS, 20):
        lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(path)]
        file.write_text("\n".join([*lines, f"{lines[-1]} 1", ""]))
        with pytest.raises(BadParams, match="is given twice") as refusal:
            read(file)
        assert str(refusal.value).startswith(f"{file}:{len(path) + 1}: {path[-1]}")


@pytest.mark.fault("a wrong value in an overlay", times=20)
def test_a_refusal_names_file_and_line(tmp_path):
    file = tmp_path / "mine.yaml"
    for path in random.Random(1).sample(NUMBERS, 20):
        named = [name for name in path if type(name) is not int]
        lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(named)]
        file.write_text("\n".join(["name: mine", *lines]) + " -.inf\n")
        with pytest.raises(BadParams) as refusal:
            load_files(ROOT / "params.yaml", file)
        place = f"{file}:{len(named) + 1}: {key_of(named)}: -inf is"
        assert str(refusal.value).startswith(place)


ODD = [None, True, -1, 0, 1.5, 10**400, 5e-324, 1e308, "", "1" * 5000, "\0", "a\nb", "\ud800"]
ODD += [[], [[1]], {}, {1: 2}, {"a": {"b": 1}}, [None], b"x", {1}, *NOT_FINITE]


@pytest.mark.fault("a value of another kind", times=20)
def test_whatever_is_not_taken_is_refused_in_lines(tmp_path):
    rng = random.Random(2)
    whole = read(ROOT / "params.yaml", ROOT / "experiments/arena.yaml")
    for path in [path for path, _ in leaves(whole) if path]:
        try:
            load(changed(path, rng.choice(ODD), whole))
        except BadParams as refusal:
            assert all(": " in line for line in str(refusal).splitlines())


BROKEN = {
    "is there not": None,
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
    "nothing known": "nothing: known\n",
}


@pytest.mark.fault("a file of parameters that is none", times=len(BROKEN))
def test_a_file_that_is_no_parameters_is_named(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    for name, content in BROKEN.items():
        if content is not None:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        given = ["--configfile", str(ROOT / "params.yaml"), str(file)]
        assert cli.run(["verify", *given]) == 2, name
        printed = capsys.readouterr().err
        assert printed.startswith(f"rapid verify: {file}:"), printed
        assert "\x1b" not in printed


@pytest.mark.fault("a wrong value at each door", times=4)
@pytest.mark.parametrize("value", [float("inf"), True, 0, "two", None])
def test_every_command_refuses_alike(value, tmp_path, capsys):
    """Also as JSON, in which Snakemake hands parameters to jobs."""
    file, json = tmp_path / "mine.yaml", yaml.safe_dump(changed(("rapid", "eta"), value), width=1e9)
    file.write_text(json)
    doors = [
        lambda: cli.run(["plan", "--configfile", str(file)]),
        lambda: cli.run(["preflight", "--configfile", str(file)]),
        lambda: report(["--config", str(file), "--text"]),
        lambda: 2 * experiment.main(["--config", str(file), "--out", str(tmp_path / "out")]),
    ]
    for door in doors:
        assert door() == 2
        assert f"{file}:" in (printed := capsys.readouterr().err)
        assert "rapid.eta: " in printed
    assert not (tmp_path / "out").exists()
