"""Changes to the published WebAssembly Lean, each with its reason.

The package runs as published, but a file takes it minutes and 3.5 GB. Nearly all of that is
book-keeping for the 200,000 functions that its dynamic linker could be asked for and is not:
the checker starts no threads and loads no shared libraries.

In Lean itself, lean.wasm, two functions begin with a call to us, so that we know when Lean runs
code of a proof. Nothing that this code does can take the call back.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple


class Patch(NamedTuple):
    """Replace `old`, which must occur exactly once, by `new`."""

    why: str
    old: str
    new: str


PATCHES = (
    Patch(
        "A symbol was looked up by a linear search through all exports. The index is only for "
        "other threads to catch up with; there are none.",
        "newSymIndex=Object.keys(lib.exports).indexOf(symbol);",
        "newSymIndex=symbol in lib.exports?0:-1;",
    ),
    Patch(
        "Every export was copied into the table of imports, for shared libraries to see.",
        'mergeLibSymbols(wasmExports,"main");',
        "",
    ),
    Patch(
        "Symbols are therefore looked up among the exports themselves.",
        'newDSO("__main__",0,wasmImports)',
        'newDSO("__main__",0,wasmExports)',
    ),
    Patch(
        "Every export got an entry in the global offset table; only those imported need one.",
        "updateGOT=(exports,replace)=>{for(var symName in exports){",
        "updateGOT=(exports,replace)=>{"
        "for(var symName of Object.keys(GOT).filter(name=>name in exports)){",
    ),
    Patch(
        "Four worker threads were started, each with the whole module compiled again.",
        "var pthreadPoolSize=4;",
        "var pthreadPoolSize=0;",
    ),
    Patch(
        "Under node's permission model this internal function may not be called.",
        'process.binding("constants")["fs"]',
        "fs.constants",
    ),
)

# Functions of lean.wasm, and the import that each is made to call first: ones without parameters
# that Lean has no use for here. wasm/runtime.js says what they then mean.
NOTICES = {
    # The constructor of the interpreter, without which no compiled definition of a proof is run.
    "_ZN4lean2ir11interpreterC2ERKNS_16elab_environmentERKNS_7optionsE": (
        "_emscripten_runtime_keepalive_clear"
    ),
    # What `debug.skipKernelTC` leads to.
    "lean_elab_add_decl_without_checking": "emscripten_unwind_to_js_event_loop",
    "lean_add_decl_without_checking": "emscripten_unwind_to_js_event_loop",
}

IMPORTS, EXPORTS, CODE = 2, 7, 10  # sections of a WebAssembly module
CALL = 0x10
HEADER = 8  # bytes

EXPORTS_DROPPED = 1  # version of drop_unused_exports
ASSIGN_EXPORTS = "function assignWasmExports(wasmExports){"
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")


class PatchFailed(ValueError):
    """The text to be patched is not the text that the patches were written for."""


def patch_lean_js(source: str) -> str:
    """Return lean.js, 0.7 MB of 89 MB; raise PatchFailed if a patch does not apply just once."""
    source = drop_unused_exports(source)
    for patch in PATCHES:
        if (count := source.count(patch.old)) != 1:
            raise PatchFailed(f"{count} places instead of one for the patch: {patch.why}")
        source = source.replace(patch.old, patch.new)
    return source


def patches_digest() -> str:
    """Return the SHA-256 of what is changed, whatever is said about it."""
    changes = [(patch.old, patch.new) for patch in PATCHES]
    return hashlib.sha256(repr((EXPORTS_DROPPED, changes, NOTICES)).encode()).hexdigest()


def drop_unused_exports(source: str) -> str:
    """Return lean.js with a variable for those exports only that the rest of it uses.

    `var _a,_b,...;function assignWasmExports(wasmExports){_a=Module["_a"]=wasmExports["a"];...}`
    names all 200,000: that is 88 of the file's 89 MB.
    """
    function = source.find(ASSIGN_EXPORTS)
    declaration = source.rfind("var ", 0, function)
    end = source.find("}", function)
    if min(function, declaration, end) < 0:
        raise PatchFailed("no assignWasmExports in lean.js")
    names = source[declaration + len("var ") : function].rstrip(";").split(",")
    assignments = source[function + len(ASSIGN_EXPORTS) : end].split(";")
    before, after = source[:declaration], source[end:]

    used = set(IDENTIFIER.findall(before)) | set(IDENTIFIER.findall(after))
    kept = [name for name in names if name in used]
    body = ";".join(line for line in assignments if line.split("=", 1)[0] in used)
    return f"{before}var {','.join(kept)};{ASSIGN_EXPORTS}{body}{after}"


def add_notices(program: bytes, notices: dict[str, str] = NOTICES) -> bytes:
    """Return a WebAssembly module in which each function of `notices` begins with a call.

    Args:
        notices: an exported function, and the imported one that it is to call.

    Raises:
        PatchFailed: one of them is not there.
    """
    sections = dict(_sections(program))
    imported = _imported_functions(program, sections[IMPORTS].start)
    try:
        calls = {
            _exported_function(program, sections[EXPORTS], name): bytes(
                [CALL, *_leb(imported.index(notice))]
            )
            for name, notice in notices.items()
        }
    except ValueError as error:
        raise PatchFailed(f"lean.wasm has other functions: {error}") from error
    code = sections[CODE]
    count, at = _number(program, code.start)
    pieces, kept = [_leb(count)], at
    for index in range(len(imported), max(calls) + 1):
        size, body = _number(program, at)
        if index in calls:
            start = _after_locals(program, body)
            pieces += [program[kept:at], _leb(size + len(calls[index]))]
            pieces += [program[body:start], calls[index]]
            kept = start
        at = body + size
    new = b"".join([*pieces, program[kept : code.stop]])
    begin = code.start - len(_leb(len(code))) - 1
    if program[begin] != CODE:
        raise PatchFailed("lean.wasm writes its sizes in another way")
    return b"".join([program[:begin], bytes([CODE]), _leb(len(new)), new, program[code.stop :]])


def _sections(program: bytes) -> Iterator[tuple[int, range]]:
    """Yield the kind of each section and where its content lies."""
    at = HEADER
    while at < len(program):
        size, start = _number(program, at + 1)
        yield program[at], range(start, start + size)
        at = start + size


def _imported_functions(program: bytes, at: int) -> list[str]:
    """Return the names of the imported functions, in their order."""
    found = []
    count, at = _number(program, at)
    for _ in range(count):
        for _ in range(2):  # the module, the name
            size, start = _number(program, at)
            name, at = program[start : start + size], start + size
        kind, at = program[at], at + 1
        if kind == 0:
            found.append(name.decode())
            _, at = _number(program, at)
        elif kind in (1, 2):  # a table has a type; both have limits
            at += kind == 1
            has_maximum, at = program[at] & 1, at + 1
            for _ in range(1 + has_maximum):
                _, at = _number(program, at)
        else:  # a global's or a tag's type
            at += 2
    return found


def _exported_function(program: bytes, section: range, name: str) -> int:
    """Return the index of an exported function; raise ValueError where there is none."""
    entry = _leb(len(name)) + name.encode() + b"\0"
    return _number(program, program.index(entry, section.start, section.stop) + len(entry))[0]


def _after_locals(program: bytes, at: int) -> int:
    """Return where the instructions of a function begin, whose body is at `at`."""
    count, at = _number(program, at)
    for _ in range(count):
        _, at = _number(program, at)
        at += 1
    return at


def _number(program: bytes, at: int) -> tuple[int, int]:
    """Return the number in LEB128 at `at`, and where it ends."""
    number = shift = 0
    while True:
        byte = program[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _leb(number: int) -> bytes:
    """Return a natural number in LEB128."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])
