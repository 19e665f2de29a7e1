"""The commands that start a Lean checker: wasm/checker.js or, for a native Lean, Checker.lean.

Both speak one protocol, JSON lines, which checker.js describes. Checker.lean has not been run by a
native Lean, since none was at hand; tests run it in the WebAssembly Lean.
"""

import contextlib
import hashlib
import os
import secrets
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from rapid.grading import limits
from rapid.grading.lean.box import NoBox, box_command
from rapid.grading.lean.install import (
    Backend,
    LeanUnavailable,
    ensure_lean,
    find_node,
    find_toolchain,
    native_checker,
    run_for_output,
)
from rapid.grading.memory import LimitedCommand, limit_memory

Role = Literal["author", "judge"]
SCRIPTS = Path(__file__).resolve().with_name("wasm")
ADVICE = (
    "Install bubblewrap. To check proofs without it, so that they can do whatever you "
    "can: --unsafe-lean of rapid grade, grading.unsafe_lean in params.yaml"
)

# A Lean that is busy with a proof does not notice its owner's end. So a shell stands beside it in
# the same process group. It waits for standard error to end, a pipe of which the owner holds the
# other end; then it deletes the scratch file and ends the group. `exec` keeps the process id, so
# that the owner ends Lean itself.
GUARDED = f"""
ulimit -s {limits.LEAN_STACK_KIBIBYTES} 2>/dev/null
scratch=$1
shift
{{ read -r _ <&2; kill -9 $$; rm -f -- "$scratch"; kill -9 -$$; }} >/dev/null &
exec "$@" 2>/dev/null
"""


@dataclass(frozen=True)
class Launch:
    """A program to start, with its whole environment and its working directory.

    `walls` says what stands around it. `scratch` is a file that it may leave behind when it is
    killed.
    """

    program: LimitedCommand
    environment: dict[str, str]
    folder: Path
    walls: str
    scratch: Path | None = None

    @property
    def command(self) -> LimitedCommand:
        """Return the program with its guard. Its standard error must be a pipe of the owner's."""
        guard = ["/bin/sh", "-c", GUARDED, "sh", str(self.scratch or "")]
        return LimitedCommand([*guard, *self.program])


def plan_launch(backend: Backend, header: str, role: Role, unsafe: bool = False) -> Launch:
    """Return how to start a checker of proofs after `header`, or raise LeanUnavailable."""
    if backend.kind == "native":
        return plan_native(backend, role, unsafe)
    return plan_wasm(backend, header, role)


def describe_walls(unsafe: bool = False) -> str:
    """Return the walls around a Lean that elaborates proofs here; raise LeanUnavailable if none."""
    return plan_launch(ensure_lean(), "", "author", unsafe).walls


def plan_native(backend: Backend, role: Role, unsafe: bool) -> Launch:
    """Return how to start a native Lean, in a box of bubblewrap or as the user.

    Args:
        unsafe: run it as the user: with files, network and processes in reach.

    Raises:
        LeanUnavailable: there can be no box.
    """
    prefix, checker = find_toolchain(backend), native_checker()
    path = [Path(entry).resolve() for entry in os.environ.get("LEAN_PATH", "").split(":") if entry]
    environment = {
        "PATH": str(prefix / "bin"),
        "LEAN_SYSROOT": str(prefix),  # otherwise it starts another Lean to ask for it
        "LEAN_PATH": ":".join(map(str, path)),
        "LEAN_NUM_THREADS": "1",
    }
    program = [str(prefix / "bin" / "lean"), "--run", str(checker), role]
    walls = "none: Lean runs as the user"
    if not unsafe:
        readable = [prefix, checker, *path]
        try:
            version = box_command([program[0], "--version"], readable)
            run_for_output(*version, environment=environment)
            program = box_command(program, readable)
        except (NoBox, OSError, subprocess.SubprocessError) as error:
            why = (getattr(error, "stderr", "") or "").strip() or error  # of bubblewrap
            raise LeanUnavailable(
                f"{backend} has to run in a sandbox, and bubblewrap does not work here: "
                f"{why}. {ADVICE}"
            ) from error
        walls = "bubblewrap: no network, no home, no other process, nothing written"
    return Launch(limit_memory(program, limits.LEAN_NATIVE_MB), environment, Path("/"), walls)


def plan_wasm(backend: Backend, header: str, role: Role) -> Launch:
    """Return how to start a WebAssembly Lean in node, which may read the install and the scripts.

    The judge alone may write: the image of Lean's memory, for the next judge to start from.
    """
    image = image_path(backend, header)
    delete_if_damaged(image)
    scratch = image.with_suffix(f".{secrets.token_hex(8)}")
    writes = role == "judge" and not image.exists()
    writable = (f"--allow-fs-write={image.parent}",) if writes else ()
    program = [
        find_node(),
        # A proof uses some thousand of 190,000 functions; most of them too seldom to optimise.
        "--wasm-lazy-compilation",
        "--wasm-lazy-validation",
        "--wasm-tiering-budget=500000000",  # bytes of code run, 40 times as many as usual
        f"--stack-size={limits.LEAN_NODE_STACK_KIBIBYTES}",
        f"--max-old-space-size={limits.LEAN_NODE_HEAP_MEBIBYTES}",
        "--disallow-code-generation-from-strings",
        "--permission",
        f"--allow-fs-read={backend.folder}",
        f"--allow-fs-read={SCRIPTS}",
        f"--allow-fs-read={image.parent}",
        *writable,
        str(SCRIPTS / "checker.js"),
        role,
        str(backend.folder),
        str(image),
        str(scratch),
    ]
    walls = "WebAssembly: no file, no network, no process; node reads its install alone"
    program = limit_memory(program, limits.LEAN_WASM_MB, address_space=False)
    return Launch(program, {"PATH": os.defpath}, backend.folder, walls, scratch)


def delete_if_damaged(image: Path) -> None:
    """Delete an image that is not as it was written, so that the next judge writes another."""
    with contextlib.suppress(FileNotFoundError):
        status = image.stat()
        if not _is_whole(image, status.st_ino, status.st_size, status.st_mtime_ns):
            try:
                image.unlink()
            except OSError as error:
                raise LeanUnavailable(f"{image} is damaged: delete it ({error.strerror})") from None


@cache
def _is_whole(image: Path, *_: int) -> bool:
    """Return whether an image has the digest that it begins with; read once in a process."""
    with image.open("rb") as stream:
        digest = stream.readline().strip().decode(errors="replace")
        return hashlib.file_digest(stream, "sha256").hexdigest() == digest


def image_path(backend: Backend, header: str) -> Path:
    """Return the file for Lean's memory after this header (memory.js), in a folder that exists.

    The name stands for all that decides the memory: the program, the checker and the header.
    """
    folder = backend.folder / "images"
    with contextlib.suppress(OSError):  # an install that may only be read does without
        folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(header.encode())
    for script in sorted(SCRIPTS.glob("*.js")):
        digest.update(script.read_bytes())
    return folder / digest.hexdigest()[:16]
