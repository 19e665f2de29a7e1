"""Escapes Unicode text for TeX, as ASCII that prints the text as it was written."""

import re
import unicodedata
from functools import cache

from rapid.text import escape_control_chars

# Number of characters of the longest word without break points. A longer word (a path, a digest)
# may break after each character, because TeX would not hyphenate it.
MAX_WORD = 24

# Character -> TeX in text mode.
_TEXT = {
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "\N{NO-BREAK SPACE}": "~",
    "\N{EM DASH}": "---",
    "\N{EN DASH}": "--",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{REGISTERED SIGN}": "(R)",
    "\N{COPYRIGHT SIGN}": "(C)",
    "\N{LEFT SINGLE QUOTATION MARK}": "`",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
    "\N{BULLET}": r"\textbullet{}",
    "\N{SECTION SIGN}": r"\S{}",
    "\N{PILCROW SIGN}": r"\P{}",
    "\N{POUND SIGN}": r"\pounds{}",
    "\N{INVERTED EXCLAMATION MARK}": "!`",
    "\N{INVERTED QUESTION MARK}": "?`",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}",
    "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "ȷ": r"\j{}",
}  # fmt: skip
# Character -> TeX in math mode.
_FORMULAS = {
    "−": "-", "±": r"\pm", "∓": r"\mp", "×": r"\times", "÷": r"\div", "·": r"\cdot", "∘": r"\circ",
    "≠": r"\neq", "≤": r"\leq", "≥": r"\geq", "≪": r"\ll", "≫": r"\gg", "≈": r"\approx",
    "≡": r"\equiv", "∼": r"\sim", "≃": r"\simeq", "∝": r"\propto", "∞": r"\infty", "°": r"^\circ",
    "∈": r"\in", "∉": r"\notin", "⊂": r"\subset", "⊆": r"\subseteq", "∪": r"\cup", "∩": r"\cap",
    "∅": r"\emptyset", "∀": r"\forall", "∃": r"\exists", "¬": r"\neg", "∧": r"\wedge",
    "∨": r"\vee", "⊢": r"\vdash", "⊤": r"\top", "⊥": r"\perp", "⊕": r"\oplus", "⊗": r"\otimes",
    "→": r"\rightarrow", "←": r"\leftarrow", "↔": r"\leftrightarrow", "⇒": r"\Rightarrow",
    "⇐": r"\Leftarrow", "⇔": r"\Leftrightarrow", "↑": r"\uparrow", "↓": r"\downarrow",
    "↦": r"\mapsto", "∑": r"\sum", "∏": r"\prod", "∫": r"\int", "√": r"\surd", "∂": r"\partial",
    "∇": r"\nabla", "ℓ": r"\ell", "†": r"\dagger", "‡": r"\ddagger", "⟨": r"\langle",
    "⟩": r"\rangle", "⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil",
    "«": r"\ll", "»": r"\gg", "′": "'", "″": "''", "⁄": "/", "µ": r"\mu", "ς": r"\varsigma",
}  # fmt: skip
# Greek letters that look like Latin ones: TeX has no command for them.
_GREEK_AS_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))
# Combining character after a letter -> TeX's command for the accent. Other accents are left out.
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING MACRON}": "=",
    "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING RING ABOVE}": "r",
    "\N{COMBINING CEDILLA}": "c",
    "\N{COMBINING CARON}": "v",
    "\N{COMBINING BREVE}": "u",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
}


def escape(text: str) -> str:
    """Return TeX that prints a text.

    A character that TeX's fonts lack is printed as its code, such as U+4E2D.
    """
    text = escape_control_chars(unicodedata.normalize("NFC", text))
    words = (
        "~" if part == "\N{NO-BREAK SPACE}" else " " if part.isspace() else _escape_word(part)
        for part in re.split(r"(\N{NO-BREAK SPACE}|\s+)", text)
        if part
    )
    # After \\ or \midrule, TeX would read a bracket or star as an optional argument; {} hides it.
    return re.sub(r"^[\[*]", r"{\g<0>}", "".join(words))


def list_unprintable(text: str) -> list[str]:
    """Return the distinct characters of a text for which `escape` prints only their code."""
    text = unicodedata.normalize("NFC", text)
    return [char for char in dict.fromkeys(text) if not char.isspace() and _to_tex(char) is None]


def render_label(text: str) -> str:
    """Return a label as TeX, with H, H=8 and r(H, Acc) in math mode."""

    def to_formula(match: re.Match) -> str:
        if match["metric"]:
            return rf"$r(H,\mathrm{{{match['metric']}}})$"
        return f"$H{match['value'] or ''}$"

    # Not the H in a name (Nemotron-H-8B), nor in a long word, where \allowbreak stands beside it.
    lone_h = r"(?<!\\allowbreak )(?<![\w.\\-])H(?P<value>=\d+)?(?![\w-]|\\allowbreak)"
    return re.sub(rf"\br\(H, (?P<metric>\w+)\)|{lone_h}", to_formula, escape(text))


def render_prose(text: str, labels: dict[int, str]) -> str:
    """Return a caption or note as TeX, with formulas, `code`, and references to tables.

    Args:
        labels: labels of the tables by number. "Table 8" becomes a `\\ref` if a no-break space
            stands before the number and the table has a label; otherwise the number is printed.
    """

    def to_reference(match: re.Match) -> str:
        label = labels.get(int(match[1]))
        return rf"Table~\ref{{{label}}}" if label else match[0]

    *pieces, last = re.split(r"`([^`]+)`", text)
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    tex = "".join(rf"{render_label(words)}\texttt{{{escape(code)}}}" for words, code in pairs)
    return re.sub(r"\bTable~(\d+)", to_reference, tex + render_label(last))


def _escape_word(word: str) -> str:
    pieces = [
        # TeX prints --, '' and ?` as other signs; {} between the characters prevents that.
        (rf"\texttt{{U+{ord(sign):04X}}}" if (tex := _to_tex(sign)) is None else tex)
        + ("{}" if sign in "-'`?!" and after in "-'`" else "")
        for sign, after in zip(word, word[1:] + " ", strict=True)
    ]
    return (r"\allowbreak " if len(word) > MAX_WORD else "").join(pieces)


@cache
def _to_tex(character: str) -> str | None:
    """Return TeX for a character, or None if TeX's fonts lack it."""
    if character in _TEXT:
        return _TEXT[character]
    if formula := _FORMULAS.get(character) or _escape_greek(character):
        return f"${formula}$"
    if character.isascii():
        return character if character.isprintable() else None
    return _escape_decomposed(character)


def _escape_greek(character: str) -> str:
    """Return TeX in math mode for a Greek letter; "" for another character."""
    if letter := _GREEK_AS_LATIN.get(character):
        return rf"\mathrm{{{letter}}}"
    match = re.fullmatch(
        r"GREEK (SMALL|CAPITAL) LETTER (\w+)",
        unicodedata.name(character, "").replace("LAMDA", "LAMBDA"),
    )
    if not match or not character.isalpha():
        return ""
    return "\\" + (match[2].lower() if match[1] == "SMALL" else match[2].capitalize())


def _escape_decomposed(character: str) -> str | None:
    """Return TeX for a character by its Unicode decomposition, or None if it has none.

    Accented letters, fractions, superscripts, subscripts and ligatures have one. Circled characters
    have one too, but without their circle they would be other characters.
    """
    # For an accented letter `kind` is the first of the codes, otherwise a name such as <super>.
    kind, *codes = unicodedata.decomposition(character).split() or [""]
    if kind in ("", "<circle>"):
        return None
    if not kind.startswith("<"):
        letter, accent = (chr(int(code, 16)) for code in [kind, *codes, "0"][:2])
        base = _to_tex(letter)
        command = _ACCENTS.get(accent)
        return rf"\{command}{{{base}}}" if base and command and letter.isascii() else base
    parts = [chr(int(code, 16)) for code in codes]
    if kind == "<fraction>":
        above, _, below = "".join(parts).partition("\N{FRACTION SLASH}")
        return rf"$\frac{{{above}}}{{{below}}}$" if below else None
    texts = [_to_tex(part) for part in parts]
    if None in texts:
        return None
    raised = {"<super>": "textsuperscript", "<sub>": "textsubscript"}.get(kind)
    return rf"\{raised}{{{''.join(texts)}}}" if raised else "".join(texts)
