"""Parsers of a report's formats, written without the code that renders them.

Each returns what a reader sees of the tables, by number. Texts are given as tables.txt shows them,
but with single spaces, and without the backticks of code.
"""

import csv
import io
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

TEX_WORDS = {
    "~": " ",  # before a tilde is decoded
    r"\textless{}": "<", r"\textgreater{}": ">", r"\textbackslash{}": "\\", r"\textbar{}": "|",
    r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", "---": "—", "--": "–", "''": '"',
    r"\allowbreak ": "",
}  # fmt: skip
FORMULAS = {"-": "−", r"\pm": "±", r"\leq": "≤", r"\dagger": "†"}
TEX_MARKS = {r"\textbf{": "best", r"\underline{": "runner-up"}
TEXT_MARKS = {"*": "best", "+": "runner-up", "": ""}
MARKDOWN_MARKS = {"**": "best", "*": "runner-up", "": ""}


@dataclass(frozen=True)
class PrintedCell:
    """A cell as a reader sees it, with the reason of its footnote."""

    text: str
    mark: str = ""
    tied: bool = False
    reason: str = ""


@dataclass
class PrintedTable:
    """A table: caption, column names after their group's (MATH: Pass@1), and rows of cells."""

    caption: str = ""
    columns: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    rows: list[list[PrintedCell]] = field(default_factory=list)

    def add_columns(self, names: list[str], labels: list[str], rows: list[list]) -> None:
        """Add columns beside those that are there."""
        assert self.labels in ([], labels)
        self.labels = labels
        self.columns += names
        self.rows = [a + b for a, b in zip(self.rows or [[] for _ in rows], rows, strict=True)]


def normalize(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def name_columns(groups: list[str], titles: list[str]) -> list[str]:
    return [": ".join(filter(None, pair)) for pair in zip(groups, titles, strict=True)]


# Text ---------------------------------------------------------------------------------------------


def read_text(text: str) -> dict[int, PrintedTable]:
    """Read tables.txt or appendix.txt."""
    parts = re.split(r"^Table (\d+)\. ", text, flags=re.M)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {int(number): _read_text_table(body) for number, body in pairs}


def _read_text_table(body: str) -> PrintedTable:
    caption, *blocks = body.strip("\n").split("\n\n")
    blocks, notes = blocks[:-1], blocks[-1]
    footnotes = re.findall(r"^\[([a-z]+)\] (.*\n(?:    .*\n)*)", notes + "\n", re.M)
    reasons = {key: normalize(reason).removesuffix(".") for key, reason in footnotes}
    table, group = PrintedTable(normalize(caption)), ""
    for block in blocks:
        lines = block.split("\n")
        if not lines[0].startswith("  "):
            group = lines.pop(0)
        spans = [match.span() for match in re.finditer("-+", lines[1])]
        head, *rows = ([line[a:b].strip() for a, b in spans] for line in [lines[0], *lines[2:]])
        cells = [[_read_text_cell(text, reasons) for text in row[1:]] for row in rows]
        names = name_columns([group] * (len(head) - 1), head[1:])
        table.add_columns(names, [row[0] for row in rows], cells)
    return table


def _read_text_cell(text: str, reasons: dict[str, str]) -> PrintedCell:
    match = re.fullmatch(r"(.*?)([*+]?)(~?)(?: \[([a-z]+)\])?", text)
    reason = reasons[match[4]] if match[4] else ""
    return PrintedCell(match[1], TEXT_MARKS[match[2]], bool(match[3]), reason)


# LaTeX --------------------------------------------------------------------------------------------


def read_latex(text: str, first_number: int) -> dict[int, PrintedTable]:
    """Read tables.tex or appendix.tex, whose tables are numbered in their order."""
    floats = re.findall(r"\\begin\{(table\*?)\}\[t\]\n(.*?)\\end\{\1\}", text, re.S)
    pieces: list[list[str]] = []  # of each table
    for _, piece in floats:
        if ", continued." in piece:
            pieces[-1].append(piece)
        else:
            pieces.append([piece])
    return {
        number: _read_latex_table("".join(parts))
        for number, parts in enumerate(pieces, start=first_number)
    }


def _read_latex_table(body: str) -> PrintedTable:
    keyed = re.findall(
        r"\\textsuperscript\{([a-z]+)\}\\,(.*?)\n?(?=\\par|\\end\{minipage\})", body, re.S
    )
    reasons = {key: normalize(decode_tex(reason)).removesuffix(".") for key, reason in keyed}
    caption = re.search(r"\\caption\{(.*)\}\n\\label", body)[1]
    caption = re.sub(r" Best results in bold, runners-up underlined.*", "", caption)
    table = PrintedTable(normalize(decode_tex(caption)))
    for tabular in re.findall(r"\\begin\{tabular\}\{\w+\}\n(.*?)\\end\{tabular\}", body, re.S):
        head, rest = tabular.split("\\midrule\n", 1)
        lines = re.sub(r"\\(midrule|addlinespace|bottomrule)\n", "", rest)
        rows = [row.split("\n& ") for row in re.split(r"\n\\\\\n", lines) if row]
        *grouped, titles = re.split(r"\n\\\\\n", head.removesuffix("\n\\\\\n"))
        titles = [decode_tex(title) for title in titles.split("\n& ")[1:]]
        spans = re.findall(r"\\multicolumn\{(\d+)\}\{c\}\{(.*)\}", "".join(grouped))
        groups = [decode_tex(title) for width, title in spans for _ in range(int(width))]
        names = name_columns(groups or [""] * len(titles), titles)
        labels = [decode_tex(row[0]) for row in rows]
        cells = [[_read_latex_cell(cell, reasons) for cell in row[1:]] for row in rows]
        if table.columns[-len(names) :] == names:  # further rows of the same columns
            assert len(table.columns) == len(names)
            table.labels += labels
            table.rows += cells
        else:
            table.add_columns(names, labels, cells)
    return table


def _read_latex_cell(tex: str, reasons: dict[str, str]) -> PrintedCell:
    signs = re.search(r"\\rlap\{\\textsuperscript\{(\$\\dagger\$)?([a-z]*)\}\}", tex)
    marks = [mark for command, mark in TEX_MARKS.items() if command in tex]
    tex = tex.replace(signs[0], "") if signs else tex
    lines = re.sub(r"\\makecell\{|\\textbf\{|\\underline\{", "{", tex).split("\\\\{\\scriptsize ")
    text = " ".join(decode_tex(line) for line in lines)
    reason = reasons[signs[2]] if signs and signs[2] else ""
    return PrintedCell(text, "".join(marks), bool(signs and signs[1]), reason)


def decode_tex(tex: str) -> str:
    """Return the text that TeX prints."""
    tex = re.sub(r"\\([{}])", lambda match: {"{": "\x01", "}": "\x02"}[match[1]], tex)
    tex = re.sub(r"\$r\(H,\\mathrm\{(\w+)\}\)\$", r"r(H, \1)", tex.replace(r"\$", "\x03"))
    tex = re.sub(r"\$([^$]*)\$", lambda match: FORMULAS.get(match[1], match[1]), tex)
    for word, text in TEX_WORDS.items():
        tex = tex.replace(word, text)
    tex = re.sub(r"[{}]", "", re.sub(r"\\(texttt|textit)\{", "{", tex))
    tex = re.sub(r"\\([%&_#])", r"\1", tex).translate({1: "{", 2: "}", 3: "$"})
    return tex.strip()


# Page ---------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Reads the tables of report.html, and the texts to copy, by table and format."""

    def __init__(self, text: str):
        super().__init__()
        self.tables: dict[int, PrintedTable] = {}
        self.copies: dict[tuple[int, str], str] = {}
        self.table: PrintedTable | None = None
        self.open: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.groups: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in ("meta", "img", "br", "link"):
            return
        self.open.append((tag, dict(attrs)))
        classes = dict(attrs).get("class")
        if tag == "figure" and classes == "table" and "id" in dict(attrs):
            self.table, self.keys, self.reasons = PrintedTable(), {}, {}
        elif tag in ("figcaption", "th", "td", "pre") or (tag == "p" and "id" in dict(attrs)):
            self.words = []
            self.cell = {"mark": "", "tied": False, "key": ""}
        elif tag == "small":
            self.words.append(" ")

    def handle_data(self, data):
        inside = [tag for tag, attrs in self.open if attrs.get("aria-hidden") != "true"]
        if len(inside) < len(self.open) or "legend" in [a.get("class") for _, a in self.open]:
            return
        if inside[-2:] == ["sup", "a"]:
            self.cell["key"] = data
        elif inside[-1:] == ["sup"]:
            self.cell["tied"] |= data == "†"
        else:
            self.words.append(data)

    def handle_endtag(self, tag):
        _, attributes = self.open.pop()
        text, tags = normalize("".join(self.words)), [tag for tag, _ in self.open]
        if self.table is None:
            return
        if tag == "figcaption":
            number, self.table.caption = re.fullmatch(r"Table (\d+)\. (.*)", text).groups()
            self.number = int(number)
        elif tag == "th" and "thead" in tags:
            if "colspan" in attributes:
                self.groups += [text] * int(attributes["colspan"])
            else:
                self.table.columns.append(text)
        elif tag == "th":
            self.table.labels.append(text)
            self.table.rows.append([])
        elif tag == "td" and "tbody" in tags:
            mark = attributes["class"].split()[:1]
            mark = mark[0] if mark and mark[0] != "first" else ""
            self.table.rows[-1].append((text, mark, self.cell["tied"], self.cell["key"]))
        elif tag == "p" and "id" in attributes:
            self.reasons[attributes["id"].rpartition("-")[2]] = text.removesuffix(".")
        elif tag == "pre":
            form = self.open[-1][1]["id"].rpartition("-")[2]
            self.copies[self.number, form] = "".join(self.words)
        elif tag == "figure":
            self._finish_table()

    def _finish_table(self) -> None:
        table, titles = self.table, self.table.columns[1:]
        table.columns = name_columns(self.groups or [""] * len(titles), titles)
        table.rows = [
            [PrintedCell(*cell, self.reasons.get(key, "")) for *cell, key in row]
            for row in table.rows
        ]
        self.tables[self.number], self.table, self.groups = table, None, []


def read_markdown(text: str) -> PrintedTable:
    """Read the Markdown of a table."""
    caption = re.match(r"\*\*Table \d+\.\*\* (.*)", text)[1]
    caption = re.sub(r" Best in bold, runner-up in italics\..*", "", caption)
    footnotes = re.findall(r"^<sup>([a-z]+)</sup> (.*)\.$", text, re.M)
    reasons = {key: normalize(decode_markdown(reason)) for key, reason in footnotes}
    lines = [line for line in text.split("\n") if line.startswith("| ")]
    (_, *names), _, *rows = (
        re.split(r" \| ", line.removeprefix("| ").removesuffix(" |")) for line in lines
    )
    cells = [[_read_markdown_cell(cell, reasons) for cell in row[1:]] for row in rows]
    columns = [decode_markdown(name) for name in names]
    labels = [decode_markdown(row[0]) for row in rows]
    return PrintedTable(normalize(decode_markdown(caption)), columns, labels, cells)


def _read_markdown_cell(cell: str, reasons: dict[str, str]) -> PrintedCell:
    pattern = r"(\*{0,2})(.*?)\1(†?)(?: <sup>([a-z]+)</sup>)?"
    match = re.fullmatch(pattern, cell)
    reason = reasons[match[4]] if match[4] else ""
    text = decode_markdown(match[2])
    return PrintedCell(text, MARKDOWN_MARKS[match[1]], bool(match[3]), reason)


def decode_markdown(text: str) -> str:
    """Return the text that Markdown shows."""
    return re.sub(r"\\([\\`*_<|~$])", r"\1", text).strip()


def read_csv(text: str) -> PrintedTable:
    """Read the CSV of a table, which has no marks and footnotes; Problems becomes the caption."""
    (_, *columns, last), *rows = csv.reader(io.StringIO(text))
    assert last == "Problems"
    cells = [[PrintedCell(cell) for cell in row[1:-1]] for row in rows]
    (caption,) = {row[-1] for row in rows} or {""}
    return PrintedTable(caption, columns, [row[0] for row in rows], cells)
