"""Values that reports look up in a job's manifest."""

from reports.manifests import JobManifest


def test_a_value_is_found_by_its_path():
    manifest = JobManifest(spec={"a": {"b": {"c": 1}}}, inputs={}, outputs={})
    keys = ("a.b.c", "a.b", "a.c", "a.b.c.d")
    assert [manifest.value(key) for key in keys] == [1, {"c": 1}, None, None]
