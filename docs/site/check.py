"""Check the links of the built site, and that its pages load nothing from other hosts.

    python docs/site/check.py [FOLDER]

Zensical checks links from page to page in Markdown. This also checks what it does not: links that
mkdocstrings makes, links to figures and other files, the navigation, and everything that a browser
loads. Exit status: 1 if something is wrong.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"src", "srcset", "poster", "data"}  # attributes whose addresses a browser loads
NAMING = {"canonical", "prev", "next", "alternate"}  # kinds of <link> that load nothing
STYLE_ADDRESS = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """The addresses in a page: what it links to, what it loads, and the anchors that it has.

    Args:
        text: HTML.
    """

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = STYLE_ADDRESS.findall(text)
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= {*values.get("class", "").split()}
        self.loaded += [values[name] for name in LOADING & values.keys() if tag != "a"]
        if tag == "link" and values.get("rel", "") not in NAMING:
            self.loaded.append(values.get("href", ""))
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])


def is_elsewhere(address: str) -> bool:
    """Return whether an address is on another host."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https")


def find_errors(site: Path) -> list[str]:
    """Return what is wrong in the pages of a site, each with the name of its page."""
    files = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    errors = []
    for file, page in files.items():
        name = file.relative_to(site)
        for address in page.loaded:
            if is_elsewhere(address):
                errors.append(f"{name} loads {address}")
        if "mermaid" in page.classes:
            errors.append(f"{name} has a diagram that a script from another host would draw")
        own = [address for address in [*page.links, *page.loaded] if not is_elsewhere(address)]
        for address in own:
            errors += [
                f"{name} links to {address}, {why}" for why in explain(address, file, site, files)
            ]
    for sheet in site.rglob("*.css"):
        for address in STYLE_ADDRESS.findall(sheet.read_text(encoding="utf-8")):
            errors.append(f"{sheet.relative_to(site)} loads {address}")
    return errors


def explain(address: str, file: Path, site: Path, files: dict[Path, Page]) -> list[str]:
    """Return what is wrong with an address on the same host, in a page; [] if it can be opened."""
    parts = urlsplit(address)
    if parts.scheme or not address:  # mailto:, data:
        return []
    path = unquote(parts.path)
    folder = site if path.startswith("/") else file.parent
    target = folder.joinpath(path.lstrip("/")).resolve() if path else file
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return ["which does not exist"]
    anchor = unquote(parts.fragment)
    if anchor and target in files and anchor not in files[target].anchors:
        return ["where that anchor does not exist"]
    return []


def main() -> None:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    if not (errors := find_errors(site)):
        print(f"{len([*site.rglob('*.html')])} pages: all links can be opened, nothing is foreign")
    sys.exit("\n".join(dict.fromkeys(errors)) or 0)


if __name__ == "__main__":
    main()
