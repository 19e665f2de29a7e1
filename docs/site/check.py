"""Check the links of the built site, and that its pages load nothing from other hosts.

    python docs/site/check.py

Zensical checks links from page to page in Markdown. This also checks what it does not: links that
mkdocstrings makes, links to figures and other files, the navigation, and everything that a browser
loads. Exit status: 1 if something is wrong.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[2]
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


def find_errors(site: Path, base: str = "/") -> list[str]:
    """Return what is wrong in the pages of a site, each with the name of its page.

    Args:
        site: the folder of the built site.
        base: the path of the site on its host, which absolute links begin with.
    """
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    errors = []
    for file, page in pages.items():
        name = file.relative_to(site)
        errors += [f"{name} loads {address}" for address in page.loaded if is_elsewhere(address)]
        if "mermaid" in page.classes:
            errors.append(f"{name} has a diagram that a script from another host would draw")
        for address in dict.fromkeys([*page.links, *page.loaded]):
            if is_elsewhere(address) or urlsplit(address).scheme:  # mailto:, data:
                continue
            target = find_target(address, file, site, base)
            anchor = unquote(urlsplit(address).fragment)
            if not target.is_file():
                errors.append(f"{name} links to {address}, which does not exist")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                errors.append(f"{name} links to {address}, where that anchor does not exist")
    for sheet in site.rglob("*.css"):
        addresses = STYLE_ADDRESS.findall(sheet.read_text(encoding="utf-8"))
        errors += [f"{sheet.relative_to(site)} loads {address}" for address in addresses]
    return errors


def find_target(address: str, file: Path, site: Path, base: str) -> Path:
    """Return the file that an address in a page stands for, on the same host."""
    path = unquote(urlsplit(address).path)
    folder = site if path.startswith(base) else file.parent
    target = (folder / path.removeprefix(base)).resolve() if path else file
    return target / "index.html" if target.is_dir() else target


def main() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    site = ROOT / config["site_dir"]
    if errors := find_errors(site, urlsplit(config.get("site_url", "")).path or "/"):
        sys.exit("\n".join(errors))
    print(f"{len([*site.rglob('*.html')])} pages: all links can be opened, nothing is foreign")


if __name__ == "__main__":
    main()
