"""Finds the program in a completion of a language model.

A completion may contain prose, fenced blocks, examples, several versions of the function, and text
that goes on until it is cut off. `find_program` makes one program of it, with one definition of the
function. It accepts about the same completions as EvalPlus's `sanitize`. That function is not used,
because its time grows with the cube of the number of lines, and because it drops functions with a
decorator.

This code runs in the sandbox, in the process that is forked for the completion. So a completion
cannot cost the grader much time or memory. The code needs only the standard library.

A completion is divided into pieces. A *piece* is a list of statements at top level. A *block* is a
piece between an opening and a closing fence; there may be several blocks between two fences. A
*passage* is any other piece.
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

# A fence: a line that opens or closes a fenced region. An opening fence has no backtick after the
# first ones.
_FENCE = re.compile(r"[ \t]*(?:(?:`{3,}|~{3,})(?P<info>.*)|\[/?PYTHON\][ \t]*)")
_CLOSING = re.compile(r"`{3,}|~{3,}|\[/PYTHON\]")  # a closing fence that follows code on its line
# Matches lines with which a piece of code may begin. A line of prose may match too; parsing it as
# Python then fails.
_START = re.compile(
    r"""[ \t]*(?:(?:async|class|def|for|from|if|import|try|while|with)\b | @ | r?(?:\"{3}|'{3})
        | [^=\s\#][^=\#]*=[^=])""",
    re.VERBOSE,
)
_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
# Opcodes that bind a global name, and opcodes that change an attribute or an item of an object.
_STORES = {"STORE_NAME", "STORE_GLOBAL"}
_ITEM_STORES = {"STORE_ATTR", "STORE_SUBSCR"}
_BUILTINS = frozenset(dir(builtins))


class ProgramStep(NamedTuple):
    """Code that is run: a statement of a completion, or a whole reference solution."""

    code: CodeType
    must_succeed: bool  # whether the program ends if the code raises an exception


class Statement:
    """A statement at top level of a completion, compiled, and the names in it.

    Attributes:
        mentioned: global names and attributes that occur in the statement, also in nested code.
        bound: global names that the statement itself binds.
        rebound: names that nested code declares `global` and binds when it is called.
        altered: names of objects of which the statement may change an attribute or item.
    """

    def __init__(self, node: ast.stmt, flags: int):
        self.node = node
        module = ast.Module([node], [])
        self.code = compile(module, "<completion>", "exec", flags=flags, dont_inherit=True)
        self.mentioned = find_names(self.code)
        operations = list(dis.get_instructions(self.code))
        self.bound = {op.argval for op in operations if op.opname in _STORES}
        self.rebound = {
            op.argval
            for nested in _nested_codes(self.code)
            for op in dis.get_instructions(nested)
            if op.opname == "STORE_GLOBAL"
        }
        stores_items = any(op.opname in _ITEM_STORES for op in operations)
        self.altered = self.mentioned if stores_items else set()

    @property
    def is_import(self) -> bool:
        """Return whether the statement is an import."""
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def is_declaration(self) -> bool:
        """Return whether the statement is an import, or the definition of a function or class."""
        return self.is_import or isinstance(self.node, (*_FUNCTIONS, ast.ClassDef))

    def defines(self, name: str) -> bool:
        """Return whether the statement or code nested in it binds this name, except by import."""
        return not self.is_import and name in self.bound | self.rebound

    def binds(self, name: str) -> bool:
        """Return whether the statement binds this name, by an import or otherwise."""
        return name in self.bound

    def is_undecorated_def(self, name: str) -> bool:
        """Return whether the statement is a `def` of this name without a decorator."""
        node = self.node
        return isinstance(node, _FUNCTIONS) and node.name == name and not node.decorator_list


Piece = list[Statement]  # a block or a passage


def find_program(completion: str, name: str) -> list[ProgramStep]:
    """Return the program that defines the function `name`, step by step.

    1. The program is made from one piece: the last block that defines the function. If no block
       defines it, the first passage that does is used, up to a second `def` of the function,
       because a base model often goes on with more versions. If no piece defines the function, a
       piece that imports it is used.
    2. A piece ends at the line where Python cannot parse any further.
    3. Imports and definitions that the piece needs and does not have are taken from other pieces.
    4. Other statements are kept only if they may change what the function uses. Statements after
       the function's definition may fail, since they may be the model's own tests. Statements from
       other pieces may fail too.

    If no piece defines or imports the function, the last block is returned; without blocks, the
    whole completion if it can be parsed. There are no steps if the completion holds only blank
    lines, comments and fences.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the completion contains no program,
            or the only definition of the function in it cannot be parsed.
    """
    text = re.sub(r"\r\n?", "\n", completion.removeprefix("\ufeff"))
    # Code that follows [PYTHON] on the same line is put on the next one.
    text = re.sub(r"^([ \t]*\[PYTHON\])(?=.*\S)", r"\1\n", text, flags=re.MULTILINE)
    if "\0" in text:
        raise ValueError("a program cannot contain NUL")
    lines = text.split("\n")
    piece, count = _parse_longest(lines)
    is_whole = piece is not None and count == len(lines)
    blocks, passages = ([], [piece]) if is_whole else _read_pieces(lines)
    passages = [_cut_before_second_definition(passage, name) for passage in passages]
    for is_definition in (Statement.defines, Statement.binds):
        for piece in blocks[::-1] + passages:
            indices = [i for i, statement in enumerate(piece) if is_definition(statement, name)]
            if indices:
                others = itertools.chain(*(p for p in blocks + passages if p is not piece))
                return _select_steps(name, piece, max(indices), list(others))
    definition = re.compile(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b", re.MULTILINE)
    if not is_whole and definition.search(text):
        raise SyntaxError("the function's definition cannot be parsed")
    if blocks or is_whole:
        last_piece = (blocks or passages)[-1]
        return [ProgramStep(statement.code, must_succeed=True) for statement in last_piece]
    if not all(_FENCE.fullmatch(line) for line in lines if re.match(r"\s*[^\s#]", line)):
        raise SyntaxError("there is no block, and the text cannot be parsed as a whole")
    return []


def find_names(code: CodeType) -> set[str]:
    """Return the global names, modules and attributes in code, at any depth."""
    return {name for nested in _nested_codes(code) for name in nested.co_names}


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of all functions and classes in it, at any depth."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _read_pieces(lines: list[str]) -> tuple[list[Piece], list[Piece]]:
    """Return the blocks and the passages of a completion, both in order.

    Pieces in a fenced region that is never closed count as passages.
    """
    blocks: list[Piece] = []
    passages: list[Piece] = []
    opened: list[Piece] | None = None  # pieces in the open region; None outside of regions
    index = 0
    while index < len(lines):
        fence, count = _FENCE.fullmatch(lines[index]), 1
        if fence and (opened is not None or "`" not in (fence["info"] or "")):
            blocks += opened or []  # a fence closes the region that is open
            # A fence opens a region if none is open. If one is open but the fence names a language,
            # it opens a region too: the fence that should have closed the last one is missing.
            has_language = re.match(r"[ \t]*[\w{]", fence["info"] or "")
            opened = [] if opened is None or has_language else None
        elif _START.match(lines[index]):
            piece, count = _parse_longest(lines[index:])
            if piece:
                (passages if opened is None else opened).append(piece)
        index += count
    return blocks, passages + (opened or [])


def _parse_longest(lines: list[str]) -> tuple[Piece | None, int]:
    """Parse as many lines as possible, from the first on.

    The indentation of the first line, which code in a list item has, is removed from all lines. If
    a statement has a syntax error, the piece ends before the statement, or at a blank line in the
    statement if the lines up to there can be parsed.

    Returns:
        The statements and the number of their lines. If nothing can be parsed: None, and the
        number of lines to skip.
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
        # Python accepts the first line if the error is below it: that line is code, and not prose.
        holds_code = holds_code or last > 0
        # A closing fence after code on the same line is a syntax error: cut the line there.
        code = _CLOSING.split(lines[last], maxsplit=1)[0]
        if code != lines[last]:
            lines = lines[:last] + ([code] if code.strip() else [])
            continue
        # Drop the line of the error, and the lines back to the start of its statement or to a blank
        # line.
        while last and lines[last - 1].strip() and not _starts_at_margin(lines[last]):
            last -= 1
        lines = lines[:last]
    # Nothing can be parsed. Skip the first line, and the rest of its statement if it is code.
    broken = itertools.takewhile(lambda line: not _starts_at_margin(line), all_lines[1:])
    return None, 1 + len(list(broken)) if holds_code else 1


def _starts_at_margin(line: str) -> bool:
    """Return whether a line is neither blank nor indented."""
    return bool(line[:1].strip())


def _compile(nodes: list[ast.stmt]) -> Piece:
    """Compile statements, without those that cannot be compiled, such as `return` at top level."""
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


def _cut_before_second_definition(piece: Piece, name: str) -> Piece:
    """Return the statements before a second `def` of the function."""
    indices = [i for i, statement in enumerate(piece) if statement.is_undecorated_def(name)]
    return piece[: indices[1]] if len(indices) > 1 else piece


def _select_steps(
    name: str, piece: Piece, defined_at: int, other_statements: list[Statement]
) -> list[ProgramStep]:
    """Return the program in a piece, with the statements that it needs from other pieces.

    `defined_at` is the index of the piece's last statement that defines the function.
    """
    bound_in_piece = {bound for statement in piece for bound in statement.bound}
    # Pairs of a statement and the names that it binds. Statements of other pieces are used only for
    # names that the piece itself does not bind.
    other_bindings = [
        (statement, statement.bound - bound_in_piece - _BUILTINS) for statement in other_statements
    ]
    bindings = other_bindings + [(statement, statement.bound) for statement in piece]
    # For each name: the names that are mentioned in the statements that bind it.
    mentions: dict[str, set[str]] = defaultdict(set)
    for statement, bound in bindings:
        for bound_name in bound:
            mentions[bound_name] |= statement.mentioned

    def reach(names: Iterable[str]) -> set[str]:
        """Return these names, the names in the statements that bind them, and so on."""
        reached: set[str] = set()
        pending = list(names)
        while pending:
            if (mentioned := pending.pop()) not in reached:
                reached.add(mentioned)
                pending += mentions.get(mentioned, ())
        return reached

    # Statements such as `sys.setrecursionlimit(10**6)` are kept: they may change a module's
    # settings.
    modules = {bound for statement in piece if statement.is_import for bound in statement.bound}
    setting_statements = {
        statement
        for statement in piece
        if not statement.is_declaration and statement.mentioned & modules
    }
    needed = reach(
        [name, *itertools.chain(*(statement.mentioned for statement in setting_statements))]
    )
    # Names whose values may change, other than by the import or definition that binds them.
    changed = set()
    for statement, bound in bindings:
        changed |= statement.altered | statement.rebound
        if not statement.is_declaration:
            changed |= bound
    changed &= needed
    steps = []
    # Indices of the piece's own statements start at 0; those of other statements are negative.
    for index, (statement, bound) in enumerate(bindings, start=-len(other_bindings)):
        reached = reach(statement.mentioned)
        if statement.is_declaration:
            is_selected = index >= 0 or bound & needed
        else:
            is_selected = reached & changed or statement in setting_statements
        if is_selected:
            # The piece's own statements up to the definition must succeed, except for one that uses
            # the function without binding it: it may be the model's own test.
            must_succeed = 0 <= index <= defined_at and name not in reached - bound
            steps.append(ProgramStep(statement.code, must_succeed))
    return steps
