"""Patches for lean.js, the loader of the published WebAssembly Lean, each with its reason.

Without patches the package works, but needs minutes and 3.5 GB for one file of Lean code. Nearly
all of that is book-keeping for 200,000 functions that threads or shared libraries could look up.
The checker uses neither. Patches of Lean itself, lean.wasm, are in notices.py.
"""

import hashlib
import re
from typing import NamedTuple

from rapid.grading.lean.wasm.notices import BEGINNINGS, NOTICES, PatchFailed


class Patch(NamedTuple):
    """A replacement of `old`, which must occur exactly once in lean.js, by `new`."""

    why: str
    old: str
    new: str


PATCHES = (
    Patch(
        "A symbol was looked up by a linear search through all exports. Only other threads need "
        "the index that is found, and there are none.",
        "newSymIndex=Object.keys(lib.exports).indexOf(symbol);",
        "newSymIndex=symbol in lib.exports?0:-1;",
    ),
    Patch(
        "Every export was copied into the table of imports, for shared libraries to see.",
        'mergeLibSymbols(wasmExports,"main");',
        "",
    ),
    Patch(
        "Without that table, symbols are looked up among the exports themselves.",
        'newDSO("__main__",0,wasmImports)',
        'newDSO("__main__",0,wasmExports)',
    ),
    Patch(
        "Every export got an entry in the global offset table; only imported symbols need one.",
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

EXPORTS_DROPPED = 1  # version of drop_unused_exports, part of the digest of all patches
ASSIGN_EXPORTS = "function assignWasmExports(wasmExports){"
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")


def patch_lean_js(source: str) -> str:
    """Return lean.js with all patches: 0.7 MB instead of 89 MB.

    Raises:
        PatchFailed: the text that a patch replaces does not occur exactly once, or lean.js has no
            function assignWasmExports.
    """
    source = drop_unused_exports(source)
    for patch in PATCHES:
        if (count := source.count(patch.old)) != 1:
            raise PatchFailed(
                f"the text that a patch is to replace occurs {count} times in lean.js, not once. "
                f"Reason for the patch: {patch.why.removesuffix('.')}"
            )
        source = source.replace(patch.old, patch.new)
    return source


def compute_patches_digest() -> str:
    """Return the SHA-256 of all patches, without their descriptions."""
    changes = [(patch.old, patch.new) for patch in PATCHES]
    return hashlib.sha256(
        repr((EXPORTS_DROPPED, changes, NOTICES, BEGINNINGS)).encode()
    ).hexdigest()


def drop_unused_exports(source: str) -> str:
    """Return lean.js with variables only for the exports that it uses.

    The file has a variable for each of Lean's 200,000 exports, which takes 88 of its 89 MB:
    `var _a,_b,...;function assignWasmExports(wasmExports){_a=Module["_a"]=wasmExports["a"];...}`
    """
    function = source.find(ASSIGN_EXPORTS)
    declaration = source.rfind("var ", 0, function)
    end = source.find("}", function)
    if min(function, declaration, end) < 0:
        raise PatchFailed("lean.js has no function assignWasmExports, which a patch changes")
    names = source[declaration + len("var ") : function].rstrip(";").split(",")
    assignments = source[function + len(ASSIGN_EXPORTS) : end].split(";")
    before, after = source[:declaration], source[end:]

    used = set(IDENTIFIER.findall(before)) | set(IDENTIFIER.findall(after))
    used_names = [name for name in names if name in used]
    body = ";".join(line for line in assignments if line.split("=")[0] in used)
    return f"{before}var {','.join(used_names)};{ASSIGN_EXPORTS}{body}{after}"
