"""Finds the program in a completion, as a model writes one.

A completion may hold prose, fences, examples, several versions of the function, and text that runs
on until it is cut off. One program comes of it, with one definition of the function. What is
accepted follows EvalPlus's `sanitize`, which is not called: its time grows with the cube of the
number of lines, and it drops functions that have a decorator.

This runs in the child, under the limits of its job, so that no text is slow or large for the
grader. It needs the standard library alone.
"""

import __future__

import ast
import builtins
import contextlib
import dis
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import NamedTuple

# A line that opens or closes a block. No backtick follows those that open one.
_FENCE = re.compile(r"[ \t]*(?:(?:`{3,}|~{3,})(?P<info>.*)|\[/?PYTHON\][ \t]*)")
_CLOSING = re.compile(r"`{3,}|~{3,}|\[/PYTHON\]")  # behind a last line of code
# The first line of a piece of code. Prose may look like one, and then does not parse.
_START = re.compile(
    r"""[ \t]*(?:(?:async|class|def|for|from|if|import|try|while|with)\b | @ | r?(?:\"{3}|'{3})
        | [^=\s\#][^=\#]*=[^=])""",
    re.VERBOSE,
)
_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
_STORES = {"STORE_NAME", "STORE_GLOBAL"}
_ITEM_STORES = {"STORE_ATTR", "STORE_SUBSCR"}
_BUILTINS = frozenset(dir(builtins))


class Part(NamedTuple):
    """A statement of a program."""

    code: CodeType
    must_succeed: bool  # else the program goes on where it fails


class Statement:
    """A statement at top level, compiled, and the names that it has to do with.

    Attributes:
        mentioned: global names and attributes, at any depth.
        bound: the names that it binds where it stands.
        rebound: the names that a function in it declares to be global, and binds.
        altered: the names whose values it may alter otherwise.
    """

    def __init__(self, node: ast.stmt, flags: int):
        self.node = node
        module = ast.Module([node], [])
        self.code = compile(module, "<completion>", "exec", flags=flags, dont_inherit=True)
        self.mentioned = names_in(self.code)
        steps = list(dis.get_instructions(self.code))
        self.bound = {step.argval for step in steps if step.opname in _STORES}
        self.rebound = {
            step.argval
            for nested in _nested_codes(self.code)
            for step in dis.get_instructions(nested)
            if step.opname == "STORE_GLOBAL"
        }
        stores_items = any(step.opname in _ITEM_STORES for step in steps)
        self.altered = self.mentioned if stores_items else set()

    @property
    def imports(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def declares(self) -> bool:
        """Return whether it is a definition or an import, and does nothing else."""
        return self.imports or isinstance(self.node, (*_FUNCTIONS, ast.ClassDef))

    def defines(self, name: str) -> bool:
        return not self.imports and name in self.bound | self.rebound

    def binds(self, name: str) -> bool:
        return name in self.bound

    def is_plain_function(self, name: str) -> bool:
        """Return whether it is a `def` of this name without a decorator."""
        node = self.node
        return isinstance(node, _FUNCTIONS) and node.name == name and not node.decorator_list


Piece = list[Statement]


def find_program(completion: str, name: str) -> list[Part]:
    """Return the program that defines the function `name`; no part where there is no text.

    - Of the blocks in fences that are closed, the last that defines the function counts. Where
      none does it is the first passage outside of them that does, up to a second `def` of the
      function: there a base model runs on. One that only imports it counts where none defines it.
    - A block or passage ends where Python cannot parse on.
    - Imports and definitions that it needs and lacks are taken from the others.
    - A statement that is neither runs only if it may change what the function uses. Behind the
      function's definition statements may fail: a test there is the model's own.

    Where nothing defines the function the last block is returned, or the last passage.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: no part of it is a program.
    """
    text = re.sub(r"\r\n?", "\n", completion.removeprefix("\ufeff"))
    text = re.sub(r"^([ \t]*\[PYTHON\])(?=.*\S)", r"\1\n", text, flags=re.MULTILINE)
    if "\0" in text:
        raise ValueError("a program cannot contain NUL")
    lines = text.split("\n")
    piece, count = _parse_longest(lines)
    is_whole = piece is not None and count == len(lines)
    blocks, passages = ([], [piece]) if is_whole else _read_pieces(lines)
    passages = [_before_second(passage, name) for passage in passages]
    for is_definition in (Statement.defines, Statement.binds):
        for piece in blocks[::-1] + passages:
            indices = [index for index, step in enumerate(piece) if is_definition(step, name)]
            if indices:
                rest = itertools.chain(*(p for p in blocks + passages if p is not piece))
                return _select_parts(name, piece, max(indices), list(rest))
    definition = re.compile(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b", re.MULTILINE)
    if not is_whole and definition.search(text):
        raise SyntaxError("the function's definition cannot be parsed")
    if blocks or is_whole:
        return [Part(statement.code, True) for statement in (blocks or passages)[-1]]
    if not all(_FENCE.fullmatch(line) for line in lines if re.match(r"\s*[^\s#]", line)):
        raise SyntaxError("no line can be parsed")
    return []


def names_in(code: CodeType) -> set[str]:
    """Return the global names, modules and attributes in code, at any depth."""
    return {name for nested in _nested_codes(code) for name in nested.co_names}


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _read_pieces(lines: list[str]) -> tuple[list[Piece], list[Piece]]:
    """Return what can be parsed in closed fences, and outside of those, in order."""
    blocks: list[Piece] = []
    passages: list[Piece] = []
    opened: list[Piece] | None = None  # what the fence holds that is open
    index = 0
    while index < len(lines):
        fence, count = _FENCE.fullmatch(lines[index]), 1
        if fence and (opened is not None or "`" not in (fence["info"] or "")):
            blocks += opened or []
            has_language = re.match(r"[ \t]*[\w{]", fence["info"] or "")
            opened = [] if opened is None or has_language else None
        elif _START.match(lines[index]):
            piece, count = _parse_longest(lines[index:])
            if piece:
                (passages if opened is None else opened).append(piece)
        index += count
    return blocks, passages + (opened or [])


def _parse_longest(lines: list[str]) -> tuple[Piece | None, int]:
    """Return the statements in as many of the first lines as can be parsed, and their number.

    They end before a statement with an error in it, or before the blank line in it from which on it
    is one. Where no lines are left: None, and how many to pass over. The indentation of the first
    line, as in a list, is taken off all of them.
    """
    margin = re.match(r"[ \t]*", lines[0])[0]
    if margin:
        lines = [line.removeprefix(margin) for line in lines]
    all_lines, holds_code = lines, bool(re.match(r"(?:async|class|def)\b", lines[0]))
    while lines:
        try:
            return _compile(ast.parse("\n".join(lines)).body), len(lines)
        except SyntaxError as error:
            last = min(error.lineno or 1, len(lines)) - 1
        holds_code = holds_code or last > 0
        code = _CLOSING.split(lines[last], maxsplit=1)[0]
        if code != lines[last]:
            lines = lines[:last] + ([code] if code.strip() else [])
            continue
        while last and lines[last - 1].strip() and not _starts_at_margin(lines[last]):
            last -= 1
        lines = lines[:last]
    broken = itertools.takewhile(lambda line: not _starts_at_margin(line), all_lines[1:])
    return None, 1 + len(list(broken)) if holds_code else 1


def _starts_at_margin(line: str) -> bool:
    return bool(line[:1].strip())


def _compile(nodes: list[ast.stmt]) -> Piece:
    """Return the statements that can be compiled; not, for one, `return` outside of functions."""
    flags = 0
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(getattr(__future__, alias.name, None), "compiler_flag", 0)
    piece = []
    for node in nodes:
        with contextlib.suppress(SyntaxError, ValueError):
            piece.append(Statement(node, flags))
    return piece


def _before_second(piece: Piece, name: str) -> Piece:
    """Return the statements before a second `def` of the function."""
    indices = [index for index, step in enumerate(piece) if step.is_plain_function(name)]
    return piece[: indices[1]] if len(indices) > 1 else piece


def _select_parts(name: str, piece: Piece, defined_at: int, rest: list[Statement]) -> list[Part]:
    """Return the program of a piece, with what it needs of the rest of the completion.

    Args:
        defined_at: index of the piece's last statement that defines the function.
    """
    bound_here = {bound for statement in piece for bound in statement.bound}
    imported = [(statement, statement.bound - bound_here - _BUILTINS) for statement in rest]
    statements = imported + [(statement, statement.bound) for statement in piece]
    mentions: dict[str, set[str]] = defaultdict(set)  # of the statements that bind a name
    for statement, bound in statements:
        for bound_name in bound:
            mentions[bound_name] |= statement.mentioned

    def reach(names: Iterable[str]) -> set[str]:
        """Return the names, and those that their statements mention, and so on."""
        reached: set[str] = set()
        pending = list(names)
        while pending:
            if (mentioned := pending.pop()) not in reached:
                reached.add(mentioned)
                pending += mentions.get(mentioned, ())
        return reached

    modules = {bound for step in piece if step.imports for bound in step.bound}
    settings = {step for step in piece if not step.declares and step.mentioned & modules}
    needed = reach([name, *itertools.chain(*(step.mentioned for step in settings))])
    state = set()  # what it uses that more than definitions and imports may change
    for statement, bound in statements:
        state |= statement.altered | statement.rebound | (set() if statement.declares else bound)
    state &= needed
    parts = []
    for index, (statement, bound) in enumerate(statements, start=-len(imported)):
        reached = reach(statement.mentioned)
        if statement.declares:
            is_selected = index >= 0 or bound & needed
        else:
            is_selected = reached & state or statement in settings
        if is_selected:
            must_succeed = 0 <= index <= defined_at and name not in reached - bound
            parts.append(Part(statement.code, must_succeed))
    return parts
