"""Patches functions in lean.wasm, so that they report being called and Lean needs no threads.

1. Some functions of Lean get a call at their beginning, a "notice". It calls a JavaScript function
   of runtime.js, which is an import of the WebAssembly module. Code in a proof cannot prevent the
   call.
2. One function is changed so that tasks run immediately and not in another thread.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Notice(NamedTuple):
    """A call that is put at the beginning of a function."""

    name: str  # of the import that is called
    arguments: int  # number of the function's own arguments that are passed on


# By function of lean.wasm. A patch cannot add an import. So the calls use imports that Lean does
# not need here and that have the right number of parameters; wasm/runtime.js defines what they do.
NOTICES = {
    # The constructor of the interpreter. Definitions in a proof can run only in the interpreter.
    "_ZN4lean2ir11interpreterC2ERKNS_16elab_environmentERKNS_7optionsE": Notice(
        "_emscripten_runtime_keepalive_clear", 0
    ),
    # Called with the option `debug.skipKernelTC`: arguments are an environment and the declaration
    # that is added to it.
    "lean_elab_add_decl_without_checking": Notice("_emscripten_log_formatted", 2),
}

# Other instructions that are put at the beginning of functions. `enqueue_core` puts a task into the
# queue of a thread pool. There are no threads here, so a task would never run, but `split`,
# `grind`, `fun_induction` and `exact?` prove lemmas in tasks. With `task->m_imp->m_prio =
# LEAN_SYNC_PRIO` the task is run immediately, by its caller.
BEGINNINGS = {
    "_ZN4lean12task_manager12enqueue_coreERNSt3__211unique_lockINS1_5mutexEEEP9lean_task": bytes(
        [
            *(0x20, 2),  # local.get 2: the task
            *(0x28, 2, 12),  # i32.load, alignment 2^2, offset 12: its m_imp
            *(0x41, 0x7F),  # i32.const -1: LEAN_SYNC_PRIO
            *(0x36, 2, 12),  # i32.store, alignment 2^2, offset 12: m_prio
        ]
    )
}

IMPORTS, EXPORTS, CODE = 2, 7, 10  # ids of sections in a WebAssembly module
GET, CALL = 0x20, 0x10  # opcodes of local.get and call
HEADER = 8  # bytes before the first section


class PatchFailed(ValueError):
    """A patch does not fit lean.js or lean.wasm: it was written for another version of the file."""


def add_beginnings(program: bytes) -> bytes:
    """Return lean.wasm with the instructions of NOTICES and BEGINNINGS.

    Args:
        program: the content of lean.wasm.

    Raises:
        PatchFailed: one of the functions or imports does not exist.
    """
    # By a section's id: the index of its first byte, and the range of its content.
    starts = {program[start]: start for start, _ in _read_sections(program)}
    sections = {program[start]: content for start, content in _read_sections(program)}
    imported = _read_imported_functions(program, sections[IMPORTS].start)
    try:
        calls = {name: _assemble_call(notice, imported) for name, notice in NOTICES.items()}
        beginnings = {
            _find_exported_function(program, sections[EXPORTS], name): instructions
            for name, instructions in (calls | BEGINNINGS).items()
        }
    except ValueError as error:
        raise PatchFailed(f"lean.wasm has other functions or imports: {error}") from error
    # Copy the functions of the code section, with the instructions added and the sizes corrected.
    code = sections[CODE]
    count, offset = _read_number(program, code.start)
    pieces, copied_to = [_to_leb(count)], offset
    # Imported functions have the first indices; the code section has the others, in order.
    for index in range(len(imported), max(beginnings) + 1):
        size, body = _read_number(program, offset)
        if index in beginnings:
            start = _skip_locals(program, body)
            pieces += [program[copied_to:offset], _to_leb(size + len(beginnings[index]))]
            pieces += [program[body:start], beginnings[index]]
            copied_to = start
        offset = body + size
    new_code = b"".join([*pieces, program[copied_to : code.stop]])
    before = program[: starts[CODE] + 1]
    return b"".join([before, _to_leb(len(new_code)), new_code, program[code.stop :]])


def _assemble_call(notice: Notice, imported: list[str]) -> bytes:
    """Return the instructions of a notice. Raise ValueError if its import does not exist."""
    arguments = [bytes([GET, index]) for index in range(notice.arguments)]
    return b"".join([*arguments, bytes([CALL]), _to_leb(imported.index(notice.name))])


def _read_sections(program: bytes) -> Iterator[tuple[int, range]]:
    """Yield for each section the index of its first byte (its id), and the range of its content."""
    offset = HEADER
    while offset < len(program):
        size, start = _read_number(program, offset + 1)
        yield offset, range(start, start + size)
        offset = start + size


def _read_imported_functions(program: bytes, offset: int) -> list[str]:
    """Return the names of the imported functions, from the imports section at `offset`."""
    names = []
    count, offset = _read_number(program, offset)
    for _ in range(count):
        for _ in range(2):  # the module, the name
            size, start = _read_number(program, offset)
            name, offset = program[start : start + size], start + size
        kind, offset = program[offset], offset + 1
        if kind == 0:  # a function: its type
            names.append(name.decode())
            _, offset = _read_number(program, offset)
        elif kind in (1, 2):  # a table or a memory: the type of a table, then limits
            offset += kind == 1
            has_maximum, offset = program[offset] & 1, offset + 1
            for _ in range(1 + has_maximum):
                _, offset = _read_number(program, offset)
        else:  # the type of a global or a tag
            offset += 2
    return names


def _find_exported_function(program: bytes, section: range, name: str) -> int:
    """Return the index of an exported function. Raise ValueError if it does not exist."""
    entry = _to_leb(len(name)) + name.encode() + b"\0"  # 0: the export is a function
    return _read_number(program, program.index(entry, section.start, section.stop) + len(entry))[0]


def _skip_locals(program: bytes, offset: int) -> int:
    """Return the index of the first instruction of a function whose body begins at `offset`."""
    count, offset = _read_number(program, offset)
    for _ in range(count):
        _, offset = _read_number(program, offset)
        offset += 1
    return offset


def _read_number(program: bytes, offset: int) -> tuple[int, int]:
    """Return the LEB128 number at `offset`, and the index after it."""
    number = shift = 0
    while True:
        byte = program[offset]
        number |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return number, offset


def _to_leb(number: int) -> bytes:
    """Encode a natural number in LEB128, WebAssembly's format of integers."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])
