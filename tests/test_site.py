"""The documentation site: its navigation, the files that its pages link to, and the check for errors.

`make docs` builds the site; CI does so too.
"""

import importlib.util
import types

import pytest
import yaml

from tests.checkout import ROOT


def load_module(name: str) -> types.ModuleType:
    """Return a module of docs/site/, which is not a package that could be imported."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / f"docs/site/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


stage, check = load_module("stage"), load_module("check")
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_the_navigation_has_each_page_of_the_documents_once():
    pages = [*stage.list_pages(CONFIG["nav"])]
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= {*pages}
    assert not stage.find_nav_errors(pages, ROOT)


@pytest.mark.parametrize(
    "pages, error",
    [
        (["docs/a.md"], "docs/sub/b.md is missing"),
        (["docs/a.md", "docs/sub/b.md", "docs/a.md"], "docs/a.md is listed twice"),
        (["docs/a.md", "docs/sub/b.md", "docs/c.md"], "docs/c.md does not exist"),
    ],
)
def test_a_navigation_with_missing_or_repeated_pages_is_refused(pages, error, tmp_path):
    for name in ("docs/a.md", "docs/sub/b.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert stage.find_nav_errors(pages, tmp_path) == [error]


def test_a_page_and_the_files_that_it_links_to_are_copied(tmp_path):
    root, folder = tmp_path / "root", tmp_path / "staged"
    for name in ("docs/figures/a.png", "rapid/a.py", "docs/b.md", "unlinked.py", "../secret.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    links = "![a](figures/a.png) [code](../rapid/a.py#L3) [page](b.md) [out](../../secret.txt)"
    (root / "docs/a.md").write_text(links)
    stage.stage_page("docs/a.md", root, folder)
    staged = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert staged == {"docs/a.md", "docs/figures/a.png", "rapid/a.py"}
    assert (folder / "docs/a.md").read_text() == links


HEAD = '<link rel="canonical" href="https://example.org/"><link rel="stylesheet" href="../a.css">'
PAGE_WITHOUT_ERRORS = f"""{HEAD}<h2 id="here">x</h2><a href="#here">x</a><a href="../b/#there">x</a><a href="/b/">x
</a><a href="https://example.org/">x</a><img src="data:image/png;base64,AAAA"><a href="../a.css">x</a>"""


@pytest.fixture
def site(tmp_path):
    """A site of two pages and a style sheet, without errors."""
    for name, text in {"a": PAGE_WITHOUT_ERRORS, "b": '<p id="there">'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(text)
    (tmp_path / "a.css").write_text("p { background: url('b.png') }")
    assert not check.find_errors(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "element, error",
    [
        ('<a href="../c/">', "links to ../c/, which does not exist"),
        ('<a href="/c/">', "links to /c/, which does not exist"),
        ('<a href="#gone">', "links to #gone, where that anchor does not exist"),
        ('<a href="../b/#here">', "links to ../b/#here, where that anchor does not exist"),
        ('<img src="c.png">', "links to c.png, which does not exist"),
        ('<img src="https://x.org/a.png">', "loads https://x.org/a.png"),
        ('<img srcset="//x.org/a.png 2x">', "loads //x.org/a.png 2x"),
        ('<script src="//x.org/a.js"></script>', "loads //x.org/a.js"),
        ('<link rel="stylesheet" href="https://x.org/a.css">', "loads https://x.org/a.css"),
        ('<link rel="preconnect" href="https://x.org">', "loads https://x.org"),
        ("<style>@import 'https://x.org/a.css'</style>", "loads https://x.org/a.css"),
        ('<pre class="mermaid">', "has a diagram that a script from another host would draw"),
    ],
)
def test_dead_links_of_a_page_and_files_from_other_hosts_are_found(element, error, site):
    page = site / "a/index.html"
    page.write_text(page.read_text() + element)
    assert check.find_errors(site) == [f"a/index.html {error}"]


def test_files_from_other_hosts_in_a_style_sheet_are_found(site):
    (site / "a.css").write_text("@font-face { src: url(https://x.org/a.woff2) }")
    assert check.find_errors(site) == ["a.css loads https://x.org/a.woff2"]


def test_the_site_is_published_by_hand_only():
    workflow = yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text(encoding="utf-8"))
    assert workflow[True] == {"workflow_dispatch": None}  # YAML 1.1 reads `on` as true
