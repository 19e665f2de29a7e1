"""The commands that start a Lean checker: checker.js for the WebAssembly Lean, or Checker.lean.

Both speak one protocol, JSON lines, which checker.js describes. Checker.lean elaborates without
an error; it has not been run by a native Lean, since none was at hand.
"""

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from rapid.grading.lean.install import Backend, find_node

HERE = Path(__file__).resolve().parent
STACK_KILOBYTES = 65536  # for deep recursion; 8192 is usual
NATIVE_VARIABLES = ("PATH", "HOME", "LEAN_PATH", "LEAN_SYSROOT", "ELAN_HOME", "ELAN_TOOLCHAIN")

# `exec` keeps the process id, so that the caller ends node itself.
WITH_STACK = ("/bin/sh", "-c", f'ulimit -s {STACK_KILOBYTES} 2>/dev/null; exec "$@"', "sh")


@dataclass(frozen=True)
class Launch:
    """What to start: the command, its whole environment, and its working directory."""

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path


def launch(backend: Backend, header: str) -> Launch:
    """How to start a checker on this Lean, for proofs after `header`.

    Raises:
        LeanUnavailable: there is no node for the WebAssembly Lean.
    """
    return native(backend) if backend.kind == "native" else wasm(backend, header)


def native(backend: Backend) -> Launch:
    """Lean runs as the user does. Proofs are elaborated, which can run code: trust its sandbox."""
    program = str(backend.folder / "lean")
    environment = {name: os.environ[name] for name in NATIVE_VARIABLES if name in os.environ}
    command = (program, "--run", str(HERE / "Checker.lean"))
    return Launch((*WITH_STACK, *command), environment, Path.cwd())


def wasm(backend: Backend, header: str) -> Launch:
    """Node may read the install and the checker. It starts no process, and writes only the image of
    Lean's memory, where there is none yet.
    """
    image = image_path(backend, header)
    writable = () if image.exists() else (f"--allow-fs-write={image.parent}",)
    command = (
        find_node(),
        # A proof uses some thousand of 190,000 functions; most of them too seldom to optimise.
        "--wasm-lazy-compilation",
        "--wasm-lazy-validation",
        "--liftoff-only",
        "--stack-size=16000",  # kilobytes
        "--permission",
        f"--allow-fs-read={backend.folder}",
        f"--allow-fs-read={HERE}",
        f"--allow-fs-read={image.parent}",
        *writable,
        "--allow-worker",  # for the watchdog
        str(HERE / "checker.js"),
        str(backend.folder),
        str(image),
    )
    return Launch((*WITH_STACK, *command), {"PATH": os.defpath}, backend.folder)


def image_path(backend: Backend, header: str) -> Path:
    """Where Lean's memory after this header is kept (see memory.js), in a folder that exists.

    The name stands for all that decides the memory: the program, the checker and the header.
    """
    folder = backend.folder / "images"
    with contextlib.suppress(OSError):  # an install that may only be read does without
        folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(header.encode())
    for script in sorted(HERE.glob("*.js")):
        digest.update(script.read_bytes())
    return folder / digest.hexdigest()[:16]
