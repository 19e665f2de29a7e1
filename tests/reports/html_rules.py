"""Rules of HTML. The Nu HTML checker finds no error in the pages of this project that keep them."""

import re
from html.parser import HTMLParser
from itertools import pairwise

VOID = ("meta", "img", "br", "link")
PHRASING = {  # elements in paragraphs, buttons and captions that the page has
    "a", "b", "button", "code", "i", "img", "small", "span", "strong", "sup", "u",
}  # fmt: skip


class Reader(HTMLParser):
    """Collects elements with the tags of their children, visible text, links and ids."""

    def __init__(self, text: str):
        super().__init__()
        self.elements = [("page", [])]
        self.parents = [self.elements[0]]  # of the next element
        self.text, self.links, self.ids, self.targets = [], [], [], []
        self.feed(text)
        self.close()

    @property
    def open(self) -> list[str]:
        """The tags of the elements that are still open."""
        return [tag for tag, _ in self.parents[1:]]

    def handle_starttag(self, tag, attrs):
        attributes, element = dict(attrs), (tag, [])
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        self.targets += [attributes["popovertarget"]] if "popovertarget" in attributes else []
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.parents[-1][1].append(tag)
        self.elements.append(element)
        if tag not in VOID:
            self.parents.append(element)

    def handle_endtag(self, tag):
        assert self.parents.pop()[0] == tag

    def handle_data(self, data):
        if not {"style", "script", "pre"} & {*self.open}:
            self.text.append(data)

    def children_of(self, *tags: str) -> list[list[str]]:
        return [children for tag, children in self.elements if tag in tags]


def check_elements(page: str) -> None:
    """Check that elements stand only where they may, and that headings skip no level."""
    tree = Reader(page)
    for children in tree.children_of("figure"):
        assert "figcaption" not in children[1:-1]
    for children in tree.children_of("details"):
        assert children[0] == "summary"
        assert "summary" not in children[1:]
    for children in tree.children_of("p", "button", "figcaption", "summary", "h1", "h2", "dt"):
        assert {*children} <= PHRASING
    for children in tree.children_of("ul"):
        assert {*children} == {"li"}
    for children in tree.children_of("a", "button"):
        assert not {"a", "button"} & {*children}
    levels = [int(tag[1]) for tag, _ in tree.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    assert len(tree.children_of("script")) == 1
