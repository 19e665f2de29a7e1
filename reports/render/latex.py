"""Tables as LaTeX: the paper's preamble is all that tables.tex needs."""

import re
import unicodedata

from reports.render import load_template, split_columns
from reports.tables.table import Cell, Table

# More columns than this and a table goes on in a second panel below the first.
MAX_COLUMNS = 12
# A word longer than this (a path, a digest) may be broken anywhere: TeX cannot hyphenate it.
MAX_WORD = 24

_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "\N{EM DASH}": "---",
    "\N{EN DASH}": "--",
    "\N{MINUS SIGN}": "$-$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{REGISTERED SIGN}": "(R)",
    "\N{COPYRIGHT SIGN}": "(C)",
    "\N{LEFT SINGLE QUOTATION MARK}": "`",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
}


def render(tables: list[Table]) -> str:
    """Return the text of tables.tex."""
    filters = {"tex": escape, "symbols": symbols, "cell": render_cell}
    template = load_template(
        "tables.tex.j2",
        filters,
        # \VAR{x} and \BLOCK{for ...} would hide among TeX's own braces; these do not.
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        keep_trailing_newline=True,
        autoescape=False,
    )
    return template.render(tables=tables, panels=split_groups)


def escape(text: str) -> str:
    """Return TeX, in ASCII, that prints a text; what the paper's fonts lack becomes `?`."""
    return "".join(
        _escape_word(part) if not part.isspace() else " "
        for part in re.split(r"(\s+)", text)
        if part
    )


def symbols(text: str) -> str:
    """Return our own wording as TeX: escaped, with H, H=8 and r(H, Acc) as formulas."""

    def to_formula(match: re.Match) -> str:
        if match[1]:
            return rf"$r(H,\mathrm{{{match[1]}}})$"
        return f"$H{match[2] or ''}$"

    # An H within a word that may be broken anywhere is a letter of it.
    return re.sub(r"\br\(H, (\w+)\)|(?<!\\allowbreak )\bH(=\d+)?\b", to_formula, escape(text))


def render_cell(entry: Cell, footnotes: dict[str, str]) -> str:
    """Return one entry with its mark, its dagger if it is tied, its footnote and further lines."""
    command = {"best": r"\textbf", "runner-up": r"\underline", "": ""}[entry.mark]
    text = escape(entry.text)
    if command:
        text = f"{command}{{{text}}}"
    signs = r"$\dagger$" * entry.tied + (footnotes[entry.reason] if entry.reason else "")
    if signs:
        # No width of its own: the figures of a column stay centred under each other.
        text += rf"\rlap{{\textsuperscript{{{signs}}}}}"
    if not entry.lines:
        return text
    below = "".join(rf"\\{{\scriptsize {escape(line)}}}" for line in entry.lines)
    return rf"\makecell{{{text}{below}}}"


def split_groups(table: Table) -> list[list[int]]:
    """Return the positions of the groups, dealt out to panels of at most MAX_COLUMNS columns."""
    return split_columns([len(group.columns) for group in table.groups], MAX_COLUMNS)


def _escape_word(word: str) -> str:
    pieces = [
        # TeX joins --, '' and ?` to other signs; {} keeps them apart.
        _escape_character(sign) + ("{}" if sign in "-'`?!" and after in "-'`" else "")
        for sign, after in zip(word, word[1:] + " ", strict=True)
    ]
    return (r"\allowbreak " if len(word) > MAX_WORD else "").join(pieces)


def _escape_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii():
        return character if character.isprintable() else "?"
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return "".join(_ESCAPES.get(part, part) for part in plain) or "?"
