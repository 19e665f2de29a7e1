"""Rewrites the LaTeX of an answer in the one spelling that `grammar.lark` parses.

Fonts, sizes and spaces are removed, commands and characters with the same meaning become one
command, the arguments of commands are put in braces, and words are put in double quotes. Nothing is
evaluated.
"""

import functools
import re

CHARACTERS = {  # Unicode characters and their commands
    "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "φ": r"\phi ",
    "∞": r"\infty ", "∅": r"\emptyset ", "ℝ": r"\reals ", "∪": r"\cup ", "∈": r"\in ",
    "∠": r"\angle ",
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "−": "-", "–": "-",
    "±": r"\pm ",
    "≤": r"\leq ", "≥": r"\geq ", "≠": r"\neq ", "≈": r"\approx ", "√": r"\sqrt ", "°": r"\degree ",
    "′": "'", "…": r"\dots ", "¢": '"cents"',
} | {superscript: f"^{exponent}" for exponent, superscript in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}  # fmt: skip
SYNONYMS = {  # commands, without backslashes, and the command with the same meaning that is kept
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom",
    "le": "leq", "ge": "geq", "leqslant": "leq", "geqslant": "geq", "ne": "neq", "ast": "times",
    "ldots": "dots", "cdots": "dots", "dotsc": "dots", "varnothing": "emptyset",
    "bar": "overline", "measuredangle": "angle", "bigcup": "cup", "backslash": "setminus",
    "varphi": "phi", "varepsilon": "epsilon",
}  # fmt: skip
SIGN_COMMANDS = {  # commands for brackets and signs, and what replaces each
    "\\lbrace": "\\{", "\\rbrace": "\\}", "\\lbrack": "[", "\\rbrack": "]", "\\langle": "(",
    "\\rangle": ")", "\\lt": "<", "\\gt": ">", "\\colon": ":",
}  # fmt: skip
SIGN_COMMANDS |= dict.fromkeys(
    ["\\vert", "\\lvert", "\\rvert", "\\mid", "\\|", "\\lVert", "\\rVert"], "|"
)
# The names of functions as parts of regular expressions.
TRIGONOMETRIC_FUNCTIONS = "sin|cos|tan|cot|sec|csc"
FUNCTIONS = f"{TRIGONOMETRIC_FUNCTIONS}|arcsin|arccos|arctan|log|ln|exp"
# The commands of letters as a part of a regular expression.
LETTER_COMMANDS = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|chi|psi"
    "|omega|pi|ell|Delta|Gamma|Omega"
)
# A command for text or a font, up to the brace that opens its argument.
TEXT_COMMAND = re.compile(
    r"\\(?:text(?!color)[a-z]*|math(?:rm|bf|it|sf|tt)|mbox|emph|boldsymbol|bm|vec|underline|operatorname)\s*\{"
)
# Patterns that are replaced before words are put in quotes: sizes, styles, colours, dollar signs.
LAYOUT_RULES = (
    # After \approx, 1.414... is a rounded number. Elsewhere it is a number with unknown digits.
    (r"(\\approx *\d*\.\d+) *(?:\.{3}|\\[lc]?dots(?![a-zA-Z]))", r"\1"),
    (r"\.{3}", r"\\dots "),
    (
        r"\\(?:left|right|[bB]igg?[lrm]?|(?:display|text)style|limits|large|Large|LARGE|huge|Huge|small|bf|rm|it)(?![a-zA-Z])",
        " ",
    ),
    (r"(?<= )\.(?!\d)", " "),  # the dot of \left. or \right.
    (r"\\(?:text)?color\s*\{[^{}]*\}|(?<!\\)\$|(?<!\\)\\[()\[\]]|\{\}", ""),
)
# Formulas in rows, perhaps after a brace that is not closed; and the relation in a row.
ROWS = (
    r"(?:\\\{ *)?\\begin *\{(cases|array|(?:aligned|gathered|align|gather)\*?)\}(?:\{[clr| ]+\})?"
    r"((?:(?!\\begin).)*?)\\end *\{\1\}(?! *\\\})"
)
ROW_RELATION = re.compile(r" *&? *(=|<|>|\\(?:leq|geq|neq|in|approx)(?![a-zA-Z])) *&?")
# Patterns that are replaced after that, in this order.
REWRITES = (
    # Spaces and thousands separators
    (r"\\\\\s*\[[^\]]*\]", r"\\\\"),  # space between rows
    (r"(?<=\d),?\\! *(?=\d{3})", "{,}"),
    (r"\\!", ""),
    (r"\{([:.])\}", r"\1"),
    (r"(?<!\\)\\[,;: ]|[~\s]+", " "),
    (r"\\q?quad(?![a-zA-Z])|\\hspace\{[^{}]*\}", "  "),
    (r"(?<=\d)(?<!(?<!\d)0) ?\{,\} ?(?=\d{3})", ""),  # in 1{,}000, but not in 0{,}000
    # "Approximately" before an answer, "and" and "or" between answers, times of day
    (r"^ *\\approx", ""),
    (r'(?<![\\"a-zA-Z])(and|or)(?!["a-zA-Z])', r'"\1"'),
    (r"(?<=\d) *A\.?M\b\.?", r' "am"'),
    (r"(?<=\d) *P\.?M\b\.?", r' "pm"'),
    # \sin 2\pi x is \sin(2\pi x), and not x times \sin 2\pi, which is 0.
    (
        rf"\\({TRIGONOMETRIC_FUNCTIONS})"
        r" *(\d* *\\pi|\\frac *\{ *\d* *\\pi *\} *\{ *\d+ *\})"
        r" *([a-zA-Z](?![a-zA-Z])(?: *\^ *(?:\{[^{}]*\}|\w))?)",
        r"\\\1(\2 \3)",
    ),
    # f(x) is an argument without brackets of its own, as in \sin f(x)
    (rf"(\\(?:{FUNCTIONS}) *)" r"([fg]\([^()]*\))", r"\1{\2}"),
    # Roots, other forms of \binom and \frac, inverse functions, matrices
    (r"\\sqrt *\[([^\]]*)\]", r"\\root{\1}"),
    (r'\\frac *\{ *("[a-z]+") *\} *\{ *("[a-z]+") *\}', r"\1/\2"),  # miles per hour
    (r"\\(sin|cos|tan) *\^ *\{ *-1 *\}", r"\\arc\1 "),
    (ROWS, lambda rows: read_rows(rows)),
    (r"\\(begin|end) *\{(?:[bp]?(?:small)?matrix|array)\}(?:\{[clr| ]+\})?", r"\\\1{matrix}"),
    # (f \circ g)(x) is f(g(x))
    (r"\( *([a-zA-Z]) *\\circ *([a-zA-Z]) *\) *(\([^()]*\))", r"\1(\2\3)"),
    (r"(?<![\\a-zA-Z])([a-zA-Z]) *\\circ *([a-zA-Z]) *(\([^()]*\))", r"\1(\2\3)"),
    # Equations in brackets are a list of equations
    (r"^ *\(([^()=]*=[^()]*)\) *$", r"\1"),
    # The empty set, the real numbers, all real numbers but one (\reals \setminus \{2\}), sets of
    # all x with a property ({x | x > 1}), degrees
    (r"\\{ *\\}", r"\\emptyset "),
    (
        r'(?i)^ *(?:"there" *"(?:is|are)" *)?"?no"? *(?:"?real"? *)?"?solutions?"?'
        r' *(?:"exists?" *)?$|^ *(?:"the" *)?"empty" *"set" *$|^ *"none" *$',
        r"\\emptyset ",
    ),
    (r'\\mathbb *(?:R|\{ *R *\})|(?:"all" *)?(?:"real" *"numbers"|"reals")', r"\\reals "),
    (
        r"(?:[a-zA-Z] *\\in *)?\\reals *(?:(?:\\setminus|-) *\\\{((?:[^{}]|\{[^{}]*\})*)\\\}"
        r'|"except" *(?:"for" *)?([^=]+|[a-zA-Z] *=.*)$)',
        lambda points: re.sub(
            r'(^|,|"and") *(?:[a-zA-Z] *=)?', r"\1x\\neq ", points[1] or points[2]
        ),
    ),
    (
        r"\\\{ *([a-zA-Z])(?: *\\in *\\reals)? *(?:\\mid|:|\|)"
        r"(?=.*(?:[<>=]|\\(?:leq|geq|neq|in)(?![a-zA-Z])))"
        r" *((?:[^{}|]|\{[^{}]*\})*\1(?:[^{}|]|\{[^{}]*\})*)\\\}",
        r"\2",
    ),
    (
        r"\^ *(?:\\(?:degree|circ)(?![a-zA-Z])|\{ *\\(?:degree|circ) *\})|\\circ(?! *[a-zA-Z(])",
        r"\\degree ",
    ),  # but f \circ g is a function of a function
)
# \over or \choose, between the parts of a group, and the commands that replace them.
INFIX = re.compile(r"\\(over|choose)(?![a-zA-Z])")
INFIX_COMMANDS = {"over": "\\frac", "choose": "\\binom"}
LAYOUT_RULES, REWRITES = (
    [(re.compile(pattern), replacement) for pattern, replacement in rules]
    for rules in (LAYOUT_RULES, REWRITES)
)
# A word in quotes, a command, or letters that are not in quotes (the match's only group), with the
# dot of an abbreviation.
WORD = re.compile(
    r"\"[a-z]+\"|\\(?:begin|end)\s*\{[a-z]*\}|\\[a-zA-Z]+|([a-zA-Z]{2,})(?:\.(?= *$|[ ,a-z]))?"
)
# A number with commas or spaces between its thousands, unless it is a part of a longer list of
# numbers such as 4,16,256; a command, a word in quotes or a character.
THOUSANDS = re.compile(r"(?<![\d.])(?<!\d,)[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?!\d|,\d|/)")
TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\"[a-z]+\"|.", re.DOTALL)
ARGUMENT_COUNTS = {  # numbers of arguments of commands
    "\\frac": 2, "\\binom": 2, "\\root": 2, "\\sqrt": 1, "\\overline": 1, "^": 1, "_": 1,
}  # fmt: skip
# A bar (|) opens an absolute value if it follows one of these tokens or if no bar is open.
BEFORE_OPENING_BAR = frozenset("+-=<>({[,*/&") | {
    "", "\\{", "\\lvert", "\\leq", "\\geq", "\\cdot", "\\times", "\\pm",
}  # fmt: skip


class Unreadable(ValueError):
    """The grammar cannot parse an answer, or the answer has no value, such as 1/0."""


@functools.lru_cache(maxsize=4096)
def clean_latex(text: str, is_list: bool = False, numbers: frozenset[str] = frozenset()) -> str:
    """Return LaTeX in the spelling that the grammar parses.

    The words of \\text{} are in quotes and in lower case.

    Args:
        is_list: whether 1,234 is a list of two numbers. In brackets it always is.
        numbers: numbers that are no lists even then, in digits without commas.

    Raises:
        Unreadable: the braces do not match.
    """
    text = re.sub(r"√ *(\d+|\([^()]*\))", r"\\sqrt{\1}", text.replace('"', " "))
    text = "".join(CHARACTERS.get(character, character) for character in text)
    for pattern, replacement in LAYOUT_RULES:
        text = pattern.sub(replacement, text)
    while command := TEXT_COMMAND.search(text):
        end = find_closing_brace(text, command.end())
        content = quote_words(text[command.end() : end], text[: command.start()])
        text = f"{text[: command.start()]} {content} {text[end + 1 :]}"
    text = re.sub(r"\\([a-zA-Z]+)", lambda name: "\\" + SYNONYMS.get(name[1], name[1]), text)
    text = replace_infix_commands(text)
    for pattern, replacement in REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(" .,;\\")
    text = strip_braces(text)
    text = add_braces([SIGN_COMMANDS.get(token, token) for token in TOKEN.findall(text)])
    text = re.sub(r"(?<=\{) +| +(?=[{}])", "", text)
    return text if re.search(r"[(\[]|\\\{", text) else join_thousands(text, is_list, numbers)


def join_thousands(text: str, is_list: bool, numbers: frozenset[str]) -> str:
    """Return a text without the commas and spaces in numbers; see `clean_latex`."""

    def join(match: re.Match) -> str:
        number = re.sub("[, ]", "", match[0])
        return match[0] if is_list and "," in match[0] and number not in numbers else number

    return THOUSANDS.sub(join, text)


def strip_braces(text: str) -> str:
    """Return a text without braces around all of it, and without spaces at its ends."""
    text = text.strip()
    while text.startswith("{") and find_closing_brace(text, 1) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def quote_words(content: str, before: str) -> str:
    """Return the content of \\text{} with its words, and letters that are units, in quotes.

    Args:
        before: the text before \\text{}. A single letter (m, g, s, l, L or h) is a unit if it
            follows a number, a name, a closing brace or parenthesis, a slash or a quote.
    """
    content = re.sub(r"(?i)\b([ap])\.\s?m\b\.?", r"\1m", content)
    if re.fullmatch(r"[\s~]*[mgslLh][\s~]*", content) and re.search(
        r'[\w})/"](?:\\[,;: ]|[~\s])*$', before
    ):
        return f'"{content.strip(" ~").lower()}"'
    if re.search(r"[a-zA-Z] */ *[a-zA-Z]", content):  # m/s
        return re.sub(r"[a-zA-Z]+", lambda word: f'"{word[0].lower()}"', content)
    return WORD.sub(quote_word, content)


def quote_word(word: re.Match) -> str:
    """Return a match of WORD in quotes, or as a command if it is a function such as sin."""
    if word[1] in FUNCTIONS.split("|"):
        return f"\\{word[1]} "
    return f'"{word[1].lower()}"' if word[1] else word[0]


def replace_infix_commands(text: str) -> str:
    """Return LaTeX with \\frac{a}{b} in place of {a \\over b}, and \\binom for \\choose.

    The parts are those of the group around the command, which may be the whole text. The group's
    braces remain, because they may hold an argument, except after a number, as in 1{1\\over2}.
    """
    while infix := INFIX.search(text):
        start, depth = infix.start(), 0
        while start and depth >= 0:
            start -= 1
            if text[max(0, start - 1)] != "\\":
                depth += {"}": 1, "{": -1}.get(text[start], 0)
        is_whole = depth >= 0
        end = len(text) if is_whole else find_closing_brace(text, infix.end())
        begin = 0 if is_whole else start + 1
        first = strip_braces(text[begin : infix.start()])
        second = strip_braces(text[infix.end() : end])
        parts = f"{INFIX_COMMANDS[infix[1]]}{{{first}}}{{{second}}}"
        if is_whole:
            return replace_infix_commands(parts)
        keeps_braces = not re.search(r"\d *$", text[:start])
        before, after = text[:start], text[end + 1 :]
        text = f"{before}{{{parts}}}{after}" if keeps_braces else f"{before}{parts}{after}"
    return text


def read_rows(rows: re.Match) -> str:
    """Return a match of ROWS as formulas with "and" between them, or unchanged if it is no list.

    A row may have an & at its beginning, and else beside its relation only. A row that begins with
    its relation continues the row before it. An array is a matrix if a row has no relation.
    """
    formulas: list[str] = []
    for row in filter(None, (row.rstrip(" ,;.").lstrip(" &") for row in rows[2].split("\\\\"))):
        formula = ROW_RELATION.sub(r" \1 ", row)
        if "&" in formula or (rows[1] == "array" and not ROW_RELATION.search(row)):
            return rows[0]
        if formulas and ROW_RELATION.match(row):
            formulas[-1] += formula
        else:
            formulas.append(formula)
    return ' "and" '.join(formulas)


def find_closing_brace(text: str, start: int) -> int:
    """Return the index of the brace that closes a group whose content begins at `start`."""
    depth = 1
    for brace in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return brace.start()
    raise Unreadable(text)


def add_braces(tokens: list[str]) -> str:
    """Return LaTeX with the arguments of commands in braces: \\frac12 becomes \\frac{1}{2}.

    A bar becomes \\lvert or \\rvert, depending on the token before it.
    """
    output: list[str] = []
    due = [0]  # number of arguments that are still expected, at each depth of braces
    previous, open_bars = "", 0  # the token before this one, and the number of open bars
    for token in tokens:
        if token != " ":
            if token == "|":
                opens = previous in BEFORE_OPENING_BAR or not open_bars
                open_bars += 1 if opens else -1
                token = "\\lvert" if opens else "\\rvert"
            previous = token
            if token == "{":
                due.append(0)
            elif token == "}":
                due.pop()
                if not due:
                    raise Unreadable("".join(tokens))
                due[-1] = max(0, due[-1] - 1)
            else:
                if due[-1] and token not in ARGUMENT_COUNTS:
                    token = f"{{{token}}}"
                due[-1] = max(0, due[-1] - 1) + ARGUMENT_COUNTS.get(token, 0)
        output.append(token)
    return "".join(output)
