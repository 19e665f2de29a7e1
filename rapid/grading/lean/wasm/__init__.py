"""The WebAssembly Lean: scripts that run it in node, and patches that make it start quickly."""
