"""Find the proof in a model's text.

A model answers with tactics, with a term after `:=`, or with the whole theorem, bare or in a fenced
block, with imports and prose around. Here all of these become one thing: the text that follows the
`:=` of the statement. The statement that a model repeats, and all that it writes before, is never
used; the checker has its own. Questions to Lean behind a proof, such as `#check`, are left out.
Nothing here decides whether a proof is one.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, islice

# A block opens with a line of its own or, with no more than a language, at the end of a line of
# prose. It ends with as long a fence of the same kind, which may also stand behind its last line.
_FENCE = re.compile(
    r"(?:^[ \t]*(`{3,})[^\n`]*|^[ \t]*(~{3,})[ \t]*\w*[ \t\r]*|(?<=[^\s`])[ \t]*(`{3,})\w*[ \t\r]*)"
    r"(?:\n|\Z)(?P<text>.*?)(?P<end>^[ \t]*(?:\1|\2|\3)|(?:\1|\3)[ \t\r]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_QUESTION = re.compile(r"#[a-z_]+(?!\S)")  # a command that declares nothing: #check, #print, #eval
_TOP_LEVEL = re.compile(r"^\S", re.MULTILINE)
_DECLARATION = re.compile(
    r"^[ \t]*(?:@\[[^]\n]*][ \t]*)?(?:(?:private|protected|noncomputable|local)[ \t]+)*"
    r"(?:theorem|lemma|def|abbrev|instance|axiom)[ \t]+([^\s:({\[]+)",
    re.MULTILINE,
)
_THEOREM = re.compile(r"\b(?:theorem|lemma)\s+([^\s:({\[]+)")
_WORD = re.compile(r"[\w.'!?«»]+")
_HIDDEN = re.compile(r'--[^\n]*|/-|"[^"\n]*"')
_COMMENT_EDGE = re.compile(r"/-|-/")
_ASSIGNMENT = re.compile(":=")
_OPENING = re.compile(r"\s*(?::=|(?=by\b))")


def stated(formal_statement: str) -> str:
    """Return a statement up to its last `:=`, behind which `by` or `by sorry` may stand."""
    ends = [match.end() for match in _ASSIGNMENT.finditer(_blank_comments(formal_statement))]
    return formal_statement[: ends[-1]] if ends else formal_statement


def find_name(statement: str) -> str | None:
    """Return the name of the theorem that a statement declares; None if it declares none."""
    declaration = _THEOREM.search(_blank_comments(statement))
    return declaration and declaration[1].rstrip(".")


def readings(name: str, statement: str, completion: str) -> list[str]:
    """Return the texts that may follow `statement` if `completion` proves it, likeliest first.

    The last fenced block that holds the theorem of this name counts, else the last. Where one is
    never closed its fence may end the proof, which is then the text before all fences. There are
    two readings of tactics where the first line alone is not indented: the line may have lost its
    indentation, which stood in the prompt or was stripped with the space around the text.

    Args:
        statement: from `stated`.
    """
    fences = [*_FENCE.finditer(completion)]
    blocks = [fence["text"] for fence in reversed(fences) if fence["text"].strip()]
    before = completion[: fences[0].start()] if fences and not fences[-1]["end"] else ""
    for text in blocks or [completion]:
        if (proof := _after_statement(name, statement, text)) is not None:
            return [proof]
    proofs = [*_read_proofs(blocks[0])] if blocks else []
    if blocks and before.strip():
        proof = _after_statement(name, statement, before)
        proofs += [*_read_proofs(before)] if proof is None else [proof]
    return proofs or [*_read_proofs(_FENCE.sub("", completion))]


def uses_lemmas(name: str, completion: str, proof: str) -> bool:
    """Return whether a proof names what `completion` declares beside its theorem."""
    declarations = _DECLARATION.finditer(_blank_comments(completion))
    declared = {match[1].rstrip(".") for match in declarations} - {name}
    words = (word.split(".") for word in _WORD.findall(_blank_comments(proof)))
    return any(prefix in declared for word in words for prefix in accumulate(word, "{}.{}".format))


def _after_statement(name: str, statement: str, text: str) -> str | None:
    """Return what follows the theorem's statement in `text`; None where it does not state it.

    Statements hold `:=` too, in binders and `let`: as many in the text as in the problem's.
    """
    code = _blank_comments(text)
    if (start := _end_of_name(name, code)) is None:
        return None
    stated_code = _blank_comments(statement)
    count = len(_ASSIGNMENT.findall(stated_code, _end_of_name(name, stated_code) or 0))
    last = next(islice(_ASSIGNMENT.finditer(code, start), max(count - 1, 0), None), None)
    return _keep_column(_without_questions(text), last.end()) if last else None


def _end_of_name(name: str, code: str) -> int | None:
    """Return where the name of this theorem ends in code that states it, else None.

    Its components may stand in « ».
    """
    components = (part.strip("«»") for part in re.findall("«[^»]*»|[^.«»]+", name))
    pattern = r"\.".join(f"«?{re.escape(component)}»?" for component in components)
    stated = re.search(rf"\b(?:theorem|lemma)\s+{pattern}(?!\.?[\w'!?«])", code)
    return stated.end() if stated else None


def _without_questions(text: str) -> str:
    """Return `text` up to the questions to Lean that it ends with."""
    code, end = _blank_comments(text), len(text)
    for start in reversed([match.start() for match in _TOP_LEVEL.finditer(code)]):
        if not _QUESTION.match(code, start):
            break
        end = start
    return text[:end]


def _keep_column(text: str, index: int) -> str:
    """Return `text` from there on, on a new line but in the same column, which matters."""
    column = index - (text.rfind("\n", 0, index) + 1)
    return "\n" + " " * column + text[index:]


def _read_proofs(text: str) -> Iterator[str]:
    """Yield the readings of a text that is a term or tactics."""
    text = _without_questions(text)
    if opening := _OPENING.match(_blank_comments(text)):
        yield _keep_column(text, opening.end())
    else:
        yield from (f" by\n{tactics}" for tactics in _indent_variants(text))


def _indent_variants(tactics: str) -> Iterator[str]:
    """Yield the tactics as they are, and with the first line as far indented as the others."""
    yield tactics
    lines = [line for line in tactics.splitlines() if line.strip()]
    first, *rest = [len(line) - len(line.lstrip()) for line in lines] or [0]
    if first == 0 and rest and min(rest) > 0:
        yield " " * min(rest) + tactics.lstrip()


def _blank_comments(text: str) -> str:
    """Return `text` with blanks for comments and strings, each character where it was."""
    pieces, position = [], 0
    while hidden := _HIDDEN.search(text, position):
        end = _comment_end(text, hidden.end()) if hidden[0] == "/-" else hidden.end()
        pieces += [text[position : hidden.start()], " " * (end - hidden.start())]
        position = end
    return "".join([*pieces, text[position:]])


def _comment_end(text: str, position: int) -> int:
    """Return where the comment ends whose `/-` ends at `position`; comments hold comments."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/-" else -1
        if depth == 0:
            return edge.end()
    return len(text)
