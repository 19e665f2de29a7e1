"""The WebAssembly Lean: scripts that run it under node, and the patches that make it start."""
