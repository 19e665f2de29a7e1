"""The JavaScript of the WebAssembly Lean and the Lean code of a native one declare the same names."""

import re

import pytest

from rapid.grading.lean import install, launch

WASM = "\n".join(path.read_text("utf-8") for path in launch.SCRIPTS.glob("*.js"))
NATIVE = "\n".join(path.read_text("utf-8") for path in install.CHECKER_PARTS)

# The patterns of each declaration in JavaScript and in Lean.
DECLARATIONS = {
    "words that run code": (r"const CODE = new Set\(\[(.*?)\]\)", r"def codeWords .*?\[(.*?)\]"),
    "trusted axioms": (r"const AXIOMS = new Set\((.*?)\.map", r"def trustedAxioms .*?\[(.*?)\]"),
    "compiled constants": (
        r"const COMPILED = new Set\((.*?)\.map",
        r"def refusedConstants .*?\[(.*?)\]",
    ),
    "constants of the kernel": (
        r"const BUILT_IN = new Set\((.*?)\.map",
        r"def builtInConstants .*?\[(.*?)\]",
    ),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_declaration_is_the_same_in_javascript_and_lean(name):
    in_javascript, in_lean = (
        re.search(pattern, source, re.DOTALL)[1]
        for pattern, source in zip(DECLARATIONS[name], (WASM, NATIVE), strict=True)
    )
    if "[[" in in_javascript:  # names as lists of components
        in_javascript = in_javascript.replace("', '", ".")
    words = set(re.findall(r"'([^']+)'", in_javascript))
    assert words == set(re.findall(r"[`\"]+([^\s,`\"]+)\"?", in_lean)) != set()
