"""Finds the proof in a completion.

A model may write tactics, a term after `:=`, or the whole theorem, with or without a fenced block,
imports and prose. `readings` converts all of these to the text that follows the `:=` of the
statement. If the model repeats the statement, its copy and the text before are dropped, because the
checker uses the statement of the benchmark. Commands that ask Lean something after a proof, such as
`#check`, are dropped too. Whether the text is a proof is not decided here.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, islice

# A fenced block. The opening fence is a line of its own, or is at the end of a line of prose with
# at most a language after it. The closing fence has the same characters and length; it is a line of
# its own or at the end of the last line.
_FENCE = re.compile(
    r"(?:^[ \t]*(`{3,})[^\n`]*|^[ \t]*(~{3,})[ \t]*\w*[ \t\r]*|(?<=[^\s`])[ \t]*(`{3,})\w*[ \t\r]*)"
    r"(?:\n|\Z)(?P<text>.*?)(?P<end>^[ \t]*(?:\1|\2|\3)|(?:\1|\3)[ \t\r]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_QUESTION = re.compile(r"#[a-z_]+(?!\S)")  # commands that declare nothing: #check, #print, #eval
_TOP_LEVEL = re.compile(r"^\S", re.MULTILINE)
_DECLARATION = re.compile(
    r"^[ \t]*(?:@\[[^]\n]*][ \t]*)?(?:(?:private|protected|noncomputable|local)[ \t]+)*"
    r"(?:theorem|lemma|def|abbrev|instance|axiom)[ \t]+([^\s:({\[]+)",
    re.MULTILINE,
)
_THEOREM = re.compile(r"\b(?:theorem|lemma)\s+([^\s:({\[]+)")
_WORD = re.compile(r"[\w.'!?«»]+")
# What may hide a keyword: a comment to the end of its line, the start of a block comment, a string.
_HIDDEN = re.compile(r'--[^\n]*|/-|"[^"\n]*"')
_COMMENT_EDGE = re.compile(r"/-|-/")
_ASSIGNMENT = re.compile(":=")
# The start of a proof without its statement: `:=`, or nothing before `by`.
_OPENING = re.compile(r"\s*(?::=|(?=by\b))")


def stated(formal_statement: str) -> str:
    """Return a statement up to its last `:=`, without `by` or `by sorry` after it."""
    ends = [match.end() for match in _ASSIGNMENT.finditer(_blank_comments(formal_statement))]
    return formal_statement[: ends[-1]] if ends else formal_statement


def find_theorem_name(statement: str) -> str | None:
    """Return the name of the theorem that a statement declares; None if it declares none."""
    declaration = _THEOREM.search(_blank_comments(statement))
    return declaration and declaration[1].rstrip(".")


def readings(name: str, statement: str, completion: str) -> list[str]:
    """Return the possible proofs in a completion, likeliest first.

    A proof is returned as the text that follows `statement`. It is taken from the last fenced block
    that states the theorem, or else from the last block.

    There are several readings in two cases:

    - A block is never closed. Then its fence may be the end of a proof before it, so the text
      before all fences is a reading too.
    - Only the first line of the tactics is not indented. It may have lost its indentation, because
      that was in the prompt, or because the completion was stripped. So the proof is returned as it
      is, and with this line indented.

    Args:
        name: the theorem's name.
        statement: from `stated`.
        completion: a model's text.
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
    """Return whether a proof uses a name that the completion declares besides the theorem."""
    declarations = _DECLARATION.finditer(_blank_comments(completion))
    declared = {match[1].rstrip(".") for match in declarations} - {name}
    most_parts = max((name.count(".") + 1 for name in declared), default=0)
    # A word `a.b.c` may use the names a, a.b and a.b.c.
    words = (word.split(".", most_parts) for word in _WORD.findall(_blank_comments(proof)))
    prefixes = (accumulate(word[:most_parts], "{}.{}".format) for word in words)
    return any(prefix in declared for word_prefixes in prefixes for prefix in word_prefixes)


def _after_statement(name: str, statement: str, text: str) -> str | None:
    """Return what follows the theorem's statement in `text`; None if it does not state the theorem.

    A statement may contain `:=` itself, in binders and `let`. So the end of the statement in `text`
    is after as many `:=` as there are in `statement`.
    """
    code = _blank_comments(text)
    if (start := _end_of_name(name, code)) is None:
        return None
    stated_code = _blank_comments(statement)
    count = len(_ASSIGNMENT.findall(stated_code, _end_of_name(name, stated_code) or 0))
    last = next(islice(_ASSIGNMENT.finditer(code, start), max(count - 1, 0), None), None)
    return _keep_column(_without_questions(text), last.end()) if last else None


def _end_of_name(name: str, code: str) -> int | None:
    """Return the index at which the name ends in `theorem NAME`; None if `code` does not have it.

    The components of the name may be in « ».
    """
    components = (part.strip("«»") for part in re.findall("«[^»]*»|[^.«»]+", name))
    pattern = r"\.".join(f"«?{re.escape(component)}»?" for component in components)
    stated = re.search(rf"\b(?:theorem|lemma)\s+{pattern}(?!\.?[\w'!?«])", code)
    return stated.end() if stated else None


def _without_questions(text: str) -> str:
    """Return `text` without commands such as `#check` at its end."""
    code, end = _blank_comments(text), len(text)
    for start in reversed([match.start() for match in _TOP_LEVEL.finditer(code)]):
        if not _QUESTION.match(code, start):
            break
        end = start
    return text[:end]


def _keep_column(text: str, index: int) -> str:
    """Return `text` from `index` on, on a new line, in the same column.

    The column matters because Lean's syntax depends on indentation.
    """
    column = index - (text.rfind("\n", 0, index) + 1)
    return "\n" + " " * column + text[index:]


def _read_proofs(text: str) -> Iterator[str]:
    """Yield the readings of a text without a statement: a term after `:=`, or tactics."""
    text = _without_questions(text)
    if opening := _OPENING.match(_blank_comments(text)):
        yield _keep_column(text, opening.end())
    else:
        yield from (f" by\n{tactics}" for tactics in _indent_variants(text))


def _indent_variants(tactics: str) -> Iterator[str]:
    """Yield the tactics; also with the first line indented, if only this line is not indented."""
    yield tactics
    lines = [line for line in tactics.splitlines() if line.strip()]
    first, *rest = [len(line) - len(line.lstrip()) for line in lines] or [0]
    if first == 0 and rest and min(rest) > 0:
        yield " " * min(rest) + tactics.lstrip()


def _blank_comments(text: str) -> str:
    """Return `text` with spaces in place of comments and strings. Indices stay the same."""
    pieces, position = [], 0
    while hidden := _HIDDEN.search(text, position):
        end = _comment_end(text, hidden.end()) if hidden[0] == "/-" else hidden.end()
        pieces += [text[position : hidden.start()], " " * (end - hidden.start())]
        position = end
    return "".join([*pieces, text[position:]])


def _comment_end(text: str, position: int) -> int:
    """Return the end of the comment whose `/-` ends at `position`. Comments may be nested."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/-" else -1
        if depth == 0:
            return edge.end()
    return len(text)
