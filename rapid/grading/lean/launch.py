"""Builds the commands that start a Lean checker: wasm/checker.js, or natively Checker.lean.

Both get requests as JSON lines. wasm/checker.js describes the protocol. Checker.lean describes the
part that it supports, without the fields `renew` and `checked`. Checker.lean has been tested in the
WebAssembly Lean only, because no native Lean was available.
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
from rapid.grading.bubblewrap_advice import ALLOW_NAMESPACES, INSTALL
from rapid.grading.lean.install import (
    Backend,
    LeanUnavailable,
    ensure_lean,
    find_node,
    find_toolchain,
    require_supported,
    run_for_output,
    write_native_checker,
)
from rapid.grading.lean.native_sandbox import SandboxUnavailable, build_sandbox_command
from rapid.grading.memory_cgroups import LimitedCommand, limit_memory

# The author elaborates a proof and exports it; the judge has the kernel check the export.
Role = Literal["author", "judge"]
SCRIPTS = Path(__file__).resolve().with_name("wasm")
_sandboxed_backends: set[Backend] = set()  # native Leans that this process has run in a sandbox
UNSAFE_ADVICE = (
    "To check proofs without a sandbox, with all rights of your user, use --unsafe-lean of rapid "
    "grade, or set grading.unsafe_lean in params.yaml"
)

# A Lean that is busy with a proof does not notice that its owner (the grader) has ended. So this
# shell script starts a guard, a second shell in the same process group. The guard reads from
# standard error, a pipe whose other end the owner holds, until the pipe is closed. Then it kills
# Lean, deletes the scratch file, and kills the group. The first shell becomes Lean by `exec`, which
# keeps the process id that the owner knows.
GUARD_SCRIPT = f"""
ulimit -s {limits.LEAN_STACK_KIBIBYTES} 2>/dev/null
scratch=$1
shift
{{ read -r _ <&2; kill -9 $$; rm -f -- "$scratch"; kill -9 -$$; }} >/dev/null &
exec "$@" 2>/dev/null
"""


@dataclass(frozen=True)
class Launch:
    """A program to start."""

    program: LimitedCommand
    environment: dict[str, str]  # all environment variables
    folder: Path  # the working directory
    isolation: str  # a description of what isolates the program from the machine
    scratch: Path | None = None  # a file that the program may leave behind when it is killed

    @property
    def command(self) -> LimitedCommand:
        """Return the command line with the guard. Standard error must be a pipe from the owner."""
        guard = ["/bin/sh", "-c", GUARD_SCRIPT, "sh", str(self.scratch or "")]
        return LimitedCommand([*guard, *self.program])


def plan_launch(backend: Backend, header: str, role: Role, unsafe: bool = False) -> Launch:
    """Return how to start an author or a judge, or raise LeanUnavailable.

    Args:
        header: the code before every statement, such as imports. The process gets it later, in a
            request; here it only selects the image of memory (`get_image_path`).
    """
    if backend.kind == "native":
        return plan_native(backend, role, unsafe)
    return plan_wasm(backend, header, role)


def describe_isolation(unsafe: bool = False) -> str:
    """Describe what isolates Lean from this machine.

    Raises:
        LeanUnavailable: the sandbox does not work here, and `unsafe` is off.
    """
    return plan_launch(ensure_lean(), "", "author", unsafe).isolation


def plan_native(backend: Backend, role: Role, unsafe: bool) -> Launch:
    """Return how to start a native Lean in a sandbox of bubblewrap.

    Args:
        unsafe: whether to start it without a sandbox, with the user's access to files, network and
            processes, if the sandbox does not work on this machine.

    Raises:
        LeanUnavailable: the sandbox cannot be made, or this Lean is not supported.
    """
    require_supported(backend)
    prefix, checker = find_toolchain(backend), write_native_checker()
    lean_path = [
        Path(entry).resolve() for entry in os.environ.get("LEAN_PATH", "").split(":") if entry
    ]
    environment = {
        "PATH": str(prefix / "bin"),
        "LEAN_SYSROOT": str(prefix),  # without it Lean would start another Lean to find the folder
        "LEAN_PATH": ":".join(map(str, lean_path)),
        "LEAN_NUM_THREADS": "1",
    }
    program = [str(prefix / "bin" / "lean"), "--run", str(checker), role]
    isolation = "bubblewrap: no network, no home, no other process, nothing written"
    readable = [prefix, checker, *lean_path]
    try:
        # Try the sandbox with a command that ends at once.
        trial_command = build_sandbox_command([program[0], "--version"], readable)
        run_for_output(*trial_command, environment=environment)
        program = build_sandbox_command(program, readable)
        _sandboxed_backends.add(backend)
    except (SandboxUnavailable, OSError, subprocess.SubprocessError) as error:
        # A sandbox that has worked in this process is never left out later: a proof may have caused
        # the failure.
        if not unsafe or backend in _sandboxed_backends:
            why = (getattr(error, "stderr", "") or "").strip() or error  # bubblewrap's message
            advice = INSTALL if isinstance(error, SandboxUnavailable) else ALLOW_NAMESPACES
            raise LeanUnavailable(
                f"{backend} has to run in a sandbox, and bubblewrap does not work here: "
                f"{why}. {advice}{'' if unsafe else f'. {UNSAFE_ADVICE}'}"
            ) from error
        isolation = "none: Lean runs as the user"
    return Launch(limit_memory(program, limits.LEAN_NATIVE_MB), environment, Path("/"), isolation)


def plan_wasm(backend: Backend, header: str, role: Role) -> Launch:
    """Return how to start the WebAssembly Lean in node.

    Node may read only the installed Lean, its images and the scripts. Only a judge may write,
    and only if there is no image yet of Lean's memory after this header (`get_image_path`). Then it
    writes the image to a scratch file, which it renames. Later processes start with the image.
    """
    image = get_image_path(backend, header)
    delete_if_damaged(image)
    scratch = image.with_suffix(f".{secrets.token_hex(8)}")
    may_write = role == "judge" and not image.exists()
    writable = [f"--allow-fs-write={path}" for path in (image, scratch) if may_write]
    program = [
        find_node(),
        # Lean has 190,000 functions. A proof calls some thousand of them, most of them too rarely
        # to be worth optimising.
        "--wasm-lazy-compilation",
        "--wasm-lazy-validation",
        "--wasm-tiering-budget=500000000",  # bytes of code run before optimising: 40 x default
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
    isolation = (
        "WebAssembly: no access to files, network or processes; node may read only the installed "
        "Lean and this package's scripts"
    )
    # Node reserves far more address space than it uses, so that is not limited.
    program = limit_memory(program, limits.LEAN_WASM_MB, address_space=False)
    return Launch(program, {"PATH": os.defpath}, backend.folder, isolation, scratch)


def delete_if_damaged(image: Path) -> None:
    """Delete an image if its content was changed, so that the next judge writes a new one."""
    with contextlib.suppress(FileNotFoundError):
        status = image.stat()
        if not _is_intact(image, status.st_ino, status.st_size, status.st_mtime_ns):
            try:
                image.unlink()
            except OSError as error:
                message = f"{image} is damaged and cannot be deleted: {error.strerror}. Delete it"
                raise LeanUnavailable(message) from None


@cache
def _is_intact(image: Path, *_: int) -> bool:
    """Return whether an image's first line is the SHA-256 of all that follows it.

    The other arguments are part of the cache's key: an unchanged file is read once in a process.
    """
    with image.open("rb") as stream:
        digest = stream.readline().strip().decode(errors="replace")
        return hashlib.file_digest(stream, "sha256").hexdigest() == digest


def get_image_path(backend: Backend, header: str) -> Path:
    """Return the path of the image of Lean's memory after this header (wasm/memory.js).

    The image is in the folder of the installed Lean. The file's name depends on the scripts and the
    header, so there is a new image if these change.
    """
    folder = backend.folder / "images"
    with contextlib.suppress(OSError):  # in a read-only installation there are no images
        folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(header.encode())
    for script in sorted(SCRIPTS.glob("*.js")):
        digest.update(script.read_bytes())
    return folder / digest.hexdigest()[:16]
