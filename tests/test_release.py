"""The distributions of a release: their files, their page on PyPI, and the workflow that publishes."""

import re
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
import yaml

from tests.checkout import ROOT, list_files
from tests.release import build_distributions, read_page, rewrite_links
from tests.subprocesses import python


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> tuple[Path, Path]:
    """Return the wheel and the source distribution."""
    return build_distributions(tmp_path_factory.mktemp("release") / "dist")


def read_wheel(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_every_file_of_the_package_and_no_other(distributions):
    files = read_wheel(distributions[0])
    package = {name for name in files if not PurePosixPath(name).parts[0].endswith(".dist-info")}
    assert package == {*list_files("rapid")}
    assert all(files[name] == (ROOT / name).read_bytes() for name in package)


def test_the_source_distribution_has_the_package_without_tests(distributions):
    with tarfile.open(distributions[1]) as archive:
        files = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}
    assert {*list_files("rapid")} <= files
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= files
    assert not [name for name in files if name.startswith(("tests", "reports", "performance"))]


def test_the_source_distribution_builds_the_same_wheel(distributions, tmp_path):
    """The rebuilt wheel is made in another folder, by the hook of setuptools that pip calls."""
    wheel, source = distributions
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    python("-c", build, folder=folder)
    [rebuilt] = tmp_path.glob("*.whl")
    assert read_wheel(rebuilt) == read_wheel(wheel)


def test_no_file_of_the_wheel_has_a_path_of_this_machine(distributions):
    for name, content in read_wheel(distributions[0]).items():
        assert str(ROOT).encode() not in content, name
        assert str(Path.home()).encode() + b"/" not in content, name


def test_the_package_s_page_has_no_relative_links(distributions):
    page = read_page(distributions[0])
    assert page.startswith("# RAPID")
    assert not re.findall(r"\]\((?!https?:|#)[^)]+\)", re.sub(r"```.*?```", "", page, flags=re.S))


PAGE = """A [page](docs/a.md#part), a [site](https://a/b), a [part](#here) and `[code](x)`.
![Text](docs/a.png)
```python
first[0](x)
```
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            None,
            "A page, a [site](https://a/b), a [part](#here) and `[code](x)`.\n\n"
            "```python\nfirst[0](x)\n```\n",
        ),
        (
            "https://host/rapid",
            "A [page](https://host/rapid/blob/v1/docs/a.md#part), a [site](https://a/b), "
            "a [part](#here) and `[code](x)`.\n![Text](https://host/rapid/raw/v1/docs/a.png)\n"
            "```python\nfirst[0](x)\n```\n",
        ),
    ],
)
def test_relative_links_lead_to_the_tag_in_the_repository_or_become_text(
    source, expected, monkeypatch
):
    monkeypatch.setattr("tests.release.__version__", "1")
    assert rewrite_links(PAGE, source) == expected


def test_publishing_is_off_until_it_is_confirmed_and_needs_no_secret():
    text = (ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert [*workflow[True]] == ["workflow_dispatch"]  # YAML reads the key "on" as true
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    for job in (build, publish):
        assert "vars.PUBLISH" in job["if"] and "inputs.version" in job["if"]
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"] == "pypi"
    assert workflow["permissions"] == {"contents": "read"} and "secrets." not in text
    assert all(re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", step["uses"]) for step in publish["steps"])
