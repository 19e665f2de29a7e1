"""Finds the proof in a completion.

A model may write tactics, a term after `:=`, or the whole theorem, with or without a fenced block,
imports and prose. `extract_candidate_proofs` converts all of these to the text that follows the
`:=` of the statement. If the model repeats the statement, its copy and the text before the copy are
dropped, because the checker uses the benchmark's statement. Query commands after a proof, such as
`#print` and `#eval`, are dropped too. This module does not decide whether the text is a proof.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, islice

# A fenced block. The opening fence is a line of its own, or stands at the end of a line of prose;
# the name of a language may follow it. The closing fence has the same characters and length. It is
# a line of its own, or stands at the end of the block's last line. Completions may be hostile: a
# fence has at most 99 characters, and no two repetitions that stand side by side match the same
# characters, so that the time to search a text is proportional to its length.
_FENCE = re.compile(
    r"(?:^[ \t]*(`{3,99})[^\n`]*|^[ \t]*(~{3,99})[ \t\r]*(?:\w+[ \t\r]*)?"
    r"|(?<=[^\s`])[ \t]*(`{3,99})\w*[ \t\r]*)"
    r"(?:\n|\Z)(?P<text>.*?)(?P<end>^[ \t]*(?:\1|\2|\3)|(?:\1|\3)[ \t\r]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_QUERY_COMMAND = re.compile(r"#[a-z_]+(?!\S)")  # declares nothing: #check, #print, #eval
_TOP_LEVEL = re.compile(r"^\S", re.MULTILINE)
_DECLARATION = re.compile(
    r"^[ \t]*(?:@\[[^]\n]*][ \t]*)?(?:(?:private|protected|noncomputable|local)[ \t]+)*"
    r"(?:theorem|lemma|def|abbrev|instance|axiom)[ \t]+([^\s:({\[]+)",
    re.MULTILINE,
)
_THEOREM = re.compile(r"\b(?:theorem|lemma)\s+([^\s:({\[]+)")
_WORD = re.compile(r"[\w.'!?«»]+")
# What may hide a keyword: a comment to the end of its line, the start of a block comment, a string.
_COMMENT_OR_STRING = re.compile(r'--[^\n]*|/-|"[^"\n]*"')
_COMMENT_EDGE = re.compile(r"/-|-/")
_ASSIGNMENT = re.compile(":=")
# The start of a proof without its statement: `:=`, or the empty text just before `by`.
_OPENING = re.compile(r"\s*(?::=|(?=by\b))")


def cut_at_last_assignment(formal_statement: str) -> str:
    """Return a statement up to its last `:=`, without `by` or `by sorry` after it."""
    ends = [match.end() for match in _ASSIGNMENT.finditer(_blank_comments(formal_statement))]
    return formal_statement[: ends[-1]] if ends else formal_statement


def find_theorem_name(statement: str) -> str | None:
    """Return the name of the theorem that a statement declares; None if it declares none."""
    declaration = _THEOREM.search(_blank_comments(statement))
    return declaration and declaration[1].rstrip(".")  # `name.` if `name.{u}` declares universes


def extract_candidate_proofs(name: str, statement: str, completion: str) -> list[str]:
    """Return the possible proofs in a completion, the likeliest first.

    A proof is returned as the text that follows `statement`. It is taken from the last fenced block
    that contains the theorem; if no block does, from the last block.

    There are several candidates in two cases:

    - A block is never closed. Then its fence may be the end of a proof before it, so the text
      before all fences is a candidate too.
    - Only the first line of the tactics is not indented. Its indentation may have been in the
      prompt, or may have been lost when the completion was stripped. So there are two candidates:
      the tactics as they are, and with this line indented.

    Args:
        name: the theorem's name.
        statement: the statement, from `cut_at_last_assignment`.
        completion: a model's text.
    """
    fences = [*_FENCE.finditer(completion)]
    # The last block comes first.
    blocks = [fence["text"] for fence in reversed(fences) if fence["text"].strip()]
    before = completion[: fences[0].start()] if fences and not fences[-1]["end"] else ""
    for text in blocks or [completion]:
        if (proof := _find_proof_after_statement(name, statement, text)) is not None:
            return [proof]
    proofs = [*_extract_without_statement(blocks[0])] if blocks else []
    if blocks and before.strip():
        proof = _find_proof_after_statement(name, statement, before)
        proofs += [*_extract_without_statement(before)] if proof is None else [proof]
    return proofs or [*_extract_without_statement(_FENCE.sub("", completion))]


def uses_lemmas(name: str, completion: str, proof: str) -> bool:
    """Return whether a proof uses a name that the completion declares besides the theorem."""
    declarations = _DECLARATION.finditer(_blank_comments(completion))
    declared = {match[1].rstrip(".") for match in declarations} - {name}
    most_parts = max((name.count(".") + 1 for name in declared), default=0)
    # A word `a.b.c` may use the names a, a.b and a.b.c.
    words = (word.split(".", most_parts) for word in _WORD.findall(_blank_comments(proof)))
    prefixes = (accumulate(word[:most_parts], "{}.{}".format) for word in words)
    return any(prefix in declared for word_prefixes in prefixes for prefix in word_prefixes)


def _find_proof_after_statement(name: str, statement: str, text: str) -> str | None:
    """Return what follows the theorem's statement in `text`; None if `text` has no such theorem.

    A statement ends in `:=`, and may contain others, in binders and in `let`. If `statement` has n
    of them after the theorem's name, the proof follows the n-th after the name in `text`.
    """
    code = _blank_comments(text)
    if (start := _find_end_of_name(name, code)) is None:
        return None
    statement_code = _blank_comments(statement)
    name_end = _find_end_of_name(name, statement_code) or 0
    n = len(_ASSIGNMENT.findall(statement_code, name_end))
    assignment = next(islice(_ASSIGNMENT.finditer(code, start), max(n - 1, 0), None), None)
    return _keep_column(_drop_query_commands(text), assignment.end()) if assignment else None


def _find_end_of_name(name: str, code: str) -> int | None:
    """Return the index at which the name ends in `theorem NAME`; None if `code` does not have it.

    The components of the name may be in « ».
    """
    components = (part.strip("«»") for part in re.findall("«[^»]*»|[^.«»]+", name))
    pattern = r"\.".join(f"«?{re.escape(component)}»?" for component in components)
    match = re.search(rf"\b(?:theorem|lemma)\s+{pattern}(?!\.?[\w'!?«])", code)
    return match.end() if match else None


def _drop_query_commands(text: str) -> str:
    """Return `text` without query commands such as `#check` at its end."""
    code, end = _blank_comments(text), len(text)
    for start in reversed([match.start() for match in _TOP_LEVEL.finditer(code)]):
        if not _QUERY_COMMAND.match(code, start):
            break
        end = start
    return text[:end]


def _keep_column(text: str, index: int) -> str:
    """Return the text from `index` on, on a new line, and in the column that it had.

    The column matters because Lean's syntax depends on indentation.
    """
    column = index - (text.rfind("\n", 0, index) + 1)
    return "\n" + " " * column + text[index:]


def _extract_without_statement(text: str) -> Iterator[str]:
    """Yield the candidates in a text without a statement: a term after `:=`, or tactics."""
    text = _drop_query_commands(text)
    if opening := _OPENING.match(_blank_comments(text)):
        yield _keep_column(text, opening.end())
    else:
        yield from (f" by\n{tactics}" for tactics in _indent_variants(text))


def _indent_variants(tactics: str) -> Iterator[str]:
    """Yield the tactics; if only their first line is not indented, also with this line indented."""
    yield tactics
    lines = [line for line in tactics.splitlines() if line.strip()]
    first, *rest = [len(line) - len(line.lstrip()) for line in lines] or [0]
    if first == 0 and rest and min(rest) > 0:
        yield " " * min(rest) + tactics.lstrip()


def _blank_comments(text: str) -> str:
    """Return `text` with spaces in place of comments and strings. Indices stay the same."""
    pieces, position = [], 0
    while match := _COMMENT_OR_STRING.search(text, position):
        end = _find_comment_end(text, match.end()) if match[0] == "/-" else match.end()
        pieces += [text[position : match.start()], " " * (end - match.start())]
        position = end
    return "".join([*pieces, text[position:]])


def _find_comment_end(text: str, position: int) -> int:
    """Return the end of the comment whose `/-` ends at `position`. Comments may be nested."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/-" else -1
        if depth == 0:
            return edge.end()
    return len(text)
