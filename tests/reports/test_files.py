"""What reports ask of a job's manifest."""

from reports.files import Manifest


def test_a_value_is_found_by_its_path():
    found = Manifest(spec={"a": {"b": {"c": 1}}}, inputs={}, outputs={})
    names = ("a.b.c", "a.b", "a.c", "a.b.c.d")
    assert [found.value(name) for name in names] == [1, {"c": 1}, None, None]
