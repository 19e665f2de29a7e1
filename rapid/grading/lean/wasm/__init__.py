"""The WebAssembly Lean: scripts that run it in node, and patches of it and its loader."""
