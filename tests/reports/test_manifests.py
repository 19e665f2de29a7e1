"""Look-up of values in a job's manifest."""

from reports.manifests import JobManifest


def test_value_is_looked_up_by_its_dotted_path():
    manifest = JobManifest(spec={"a": {"b": {"c": 1}}}, inputs={}, outputs={})
    keys = ("a.b.c", "a.b", "a.c", "a.b.c.d")
    assert [manifest.get_spec_value(key) for key in keys] == [1, {"c": 1}, None, None]
