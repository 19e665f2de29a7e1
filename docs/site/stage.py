"""Collect the pages of the documentation site in .site/, under their paths in the repository.

    python docs/site/stage.py

mkdocs.yml lists the pages: README.md, docs/*.md and others. Their relative links hold on a code
host and also here, since each page keeps its path, and each file that it links to is copied beside
it: a figure, a source file. Mermaid diagrams become pictures, which need no script in the browser.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s:#]+)(?:#[^)\s]*)?\)")
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FOLDER = ROOT / ".site"


def list_pages(nav: Any) -> Iterator[str]:
    """Yield the pages of a nav in their order."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from list_pages(entry)


def find_nav_errors(pages: list[str], root: Path) -> list[str]:
    """Return what is wrong with a nav: pages that do not exist, are missing or listed twice."""
    existing = {file.relative_to(root).as_posix() for file in root.glob("docs/**/*.md")}
    errors = [f"{page} does not exist" for page in pages if not (root / page).is_file()]
    errors += [f"{page} is missing" for page in sorted(existing - {*pages})]
    return errors + [f"{page} is listed twice" for page in {*pages} if pages.count(page) > 1]


def draw_diagrams(text: str, page: Path) -> str:
    """Replace the diagrams in a page by pictures beside it, one for each colour scheme."""
    import mermaidx  # in the environment of `make docs` only; tests call the rest of this file

    def draw(diagram: re.Match) -> str:
        images = []
        for scheme, theme in {"light": "default", "dark": "dark"}.items():
            svg = mermaidx.render(diagram[1], theme=theme).svg()
            width = re.search(r"max-width: ([\d.]+)px", svg)[1]
            picture = page.with_name(f"{page.stem}-{diagram.start()}-{scheme}.svg")
            picture.write_text(svg, encoding="utf-8")
            images.append(f'![Diagram]({picture.name}#only-{scheme}){{ width="{width}" }}')
        return "\n".join(images)

    return DIAGRAM.sub(draw, text)


def stage_page(name: str, root: Path, folder: Path) -> None:
    """Write a page into the folder, and copy the files that it links to."""
    text = (root / name).read_text(encoding="utf-8")
    page = folder / name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(draw_diagrams(text, page) if DIAGRAM.search(text) else text, encoding="utf-8")
    for target in LINK.findall(text):
        file = (root / name).parent.joinpath(target).resolve()
        if file.suffix != ".md" and file.is_file() and file.is_relative_to(root):
            copy = folder / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def main() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [*list_pages(config["nav"])]
    if errors := find_nav_errors(pages, ROOT):
        sys.exit("\n".join(f"mkdocs.yml: nav: {error}" for error in errors))
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in pages:
        stage_page(name, ROOT, FOLDER)


if __name__ == "__main__":
    main()
