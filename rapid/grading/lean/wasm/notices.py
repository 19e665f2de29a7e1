"""Instructions put into lean.wasm, so that we know which ways Lean goes, and it needs no threads.

Some functions of Lean are made to begin with a call of an import, which is a JavaScript function of
ours (runtime.js). No code that a proof brings along can keep Lean from calling it. Another is made
to run tasks at once.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Notice(NamedTuple):
    """The import that a function calls first, and how many of its own arguments it passes on."""

    name: str
    arguments: int


# Functions of lean.wasm, and what each is made to call first: imports of as many parameters that
# Lean has no use for here. wasm/runtime.js says what they then mean.
NOTICES = {
    # The constructor of the interpreter, without which no compiled definition of a proof is run.
    "_ZN4lean2ir11interpreterC2ERKNS_16elab_environmentERKNS_7optionsE": Notice(
        "_emscripten_runtime_keepalive_clear", 0
    ),
    # What `debug.skipKernelTC` leads to, with an environment and the declaration to be added.
    "lean_elab_add_decl_without_checking": Notice("_emscripten_log_formatted", 2),
}

# What else functions begin with. Where a task is put into the queue of the threads, of which there
# are none: `task->m_imp->m_prio = LEAN_SYNC_PRIO`, so that it is run at once by the one that asks.
# `split`, `grind`, `fun_induction` and `exact?` leave lemmas to tasks.
BEGINNINGS = {
    "_ZN4lean12task_manager12enqueue_coreERNSt3__211unique_lockINS1_5mutexEEEP9lean_task": bytes(
        [
            *(0x20, 2),  # local.get: the task
            *(0x28, 2, 12),  # i32.load: its m_imp
            *(0x41, 0x7F),  # i32.const -1: LEAN_SYNC_PRIO
            *(0x36, 2, 12),  # i32.store: m_prio
        ]
    )
}

IMPORTS, EXPORTS, CODE = 2, 7, 10  # sections of a WebAssembly module
GET, CALL = 0x20, 0x10
HEADER = 8  # bytes


class PatchFailed(ValueError):
    """The patches were written for another file than this one."""


def add_beginnings(program: bytes) -> bytes:
    """Return lean.wasm with what the exported functions of NOTICES and BEGINNINGS begin with.

    Raises:
        PatchFailed: one of them is not there.
    """
    begins = {program[begin]: begin for begin, _ in _read_sections(program)}
    sections = {program[begin]: content for begin, content in _read_sections(program)}
    imported = _imported_functions(program, sections[IMPORTS].start)
    try:
        calls = {name: _assemble_call(notice, imported) for name, notice in NOTICES.items()}
        added = {
            _exported_function(program, sections[EXPORTS], name): instructions
            for name, instructions in (calls | BEGINNINGS).items()
        }
    except ValueError as error:
        raise PatchFailed(f"lean.wasm has other functions: {error}") from error
    code = sections[CODE]
    count, at = _read_number(program, code.start)
    pieces, copied_to = [_to_leb(count)], at
    for index in range(len(imported), max(added) + 1):
        size, body = _read_number(program, at)
        if index in added:
            start = _after_locals(program, body)
            pieces += [program[copied_to:at], _to_leb(size + len(added[index]))]
            pieces += [program[body:start], added[index]]
            copied_to = start
        at = body + size
    new = b"".join([*pieces, program[copied_to : code.stop]])
    before = program[: begins[CODE] + 1]
    return b"".join([before, _to_leb(len(new)), new, program[code.stop :]])


def _assemble_call(notice: Notice, imported: list[str]) -> bytes:
    """Return the instructions that give a notice; raise ValueError where it is not imported."""
    arguments = [bytes([GET, at]) for at in range(notice.arguments)]
    return b"".join([*arguments, bytes([CALL]), _to_leb(imported.index(notice.name))])


def _read_sections(program: bytes) -> Iterator[tuple[int, range]]:
    """Yield where each section begins, with its kind, and where its content lies."""
    at = HEADER
    while at < len(program):
        size, start = _read_number(program, at + 1)
        yield at, range(start, start + size)
        at = start + size


def _imported_functions(program: bytes, at: int) -> list[str]:
    """Return the names of the imported functions, in their order."""
    names = []
    count, at = _read_number(program, at)
    for _ in range(count):
        for _ in range(2):  # the module, the name
            size, start = _read_number(program, at)
            name, at = program[start : start + size], start + size
        kind, at = program[at], at + 1
        if kind == 0:
            names.append(name.decode())
            _, at = _read_number(program, at)
        elif kind in (1, 2):  # a table has a type; both have limits
            at += kind == 1
            has_maximum, at = program[at] & 1, at + 1
            for _ in range(1 + has_maximum):
                _, at = _read_number(program, at)
        else:  # a global's or a tag's type
            at += 2
    return names


def _exported_function(program: bytes, section: range, name: str) -> int:
    """Return the index of an exported function; raise ValueError where there is none."""
    entry = _to_leb(len(name)) + name.encode() + b"\0"
    return _read_number(program, program.index(entry, section.start, section.stop) + len(entry))[0]


def _after_locals(program: bytes, at: int) -> int:
    """Return where the instructions of a function begin, whose body is at `at`."""
    count, at = _read_number(program, at)
    for _ in range(count):
        _, at = _read_number(program, at)
        at += 1
    return at


def _read_number(program: bytes, at: int) -> tuple[int, int]:
    """Return the number in LEB128 at `at`, and where it ends."""
    number = shift = 0
    while True:
        byte = program[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _to_leb(number: int) -> bytes:
    """Return a natural number in LEB128."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])
