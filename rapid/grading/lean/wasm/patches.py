"""Changes to the published WebAssembly Lean, each with its reason.

The package runs as published, but a file takes it minutes and 3.5 GB. Nearly all of that is
book-keeping for the 200,000 functions that its dynamic linker could be asked for and is not:
the checker starts no threads and loads no shared libraries. What is changed in Lean itself,
lean.wasm, is in notices.py.
"""

import hashlib
import re
from typing import NamedTuple

from rapid.grading.lean.wasm.notices import BEGINNINGS, NOTICES, PatchFailed


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

EXPORTS_DROPPED = 1  # version of drop_unused_exports
ASSIGN_EXPORTS = "function assignWasmExports(wasmExports){"
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")


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
    return hashlib.sha256(
        repr((EXPORTS_DROPPED, changes, NOTICES, BEGINNINGS)).encode()
    ).hexdigest()


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
    used_names = [name for name in names if name in used]
    body = ";".join(line for line in assignments if line.split("=")[0] in used)
    return f"{before}var {','.join(used_names)};{ASSIGN_EXPORTS}{body}{after}"
