"""`make setup` gives pip's settings to uv, and either installs exactly the lock file or fails."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT

module_spec = importlib.util.spec_from_file_location("install", ROOT / "requirements/install.py")
install = importlib.util.module_from_spec(module_spec)
module_spec.loader.exec_module(install)

FAKE_BACKEND = """
import shutil, sys
def build_editable(folder, *_):
    shutil.copy({wheel!r}, folder)
    return {name!r}
"""
FAKE_PIP = """
import sys
if sys.argv[-2:] == ["config", "list"]:
    print("global.no-index='true'")
    print(":env:.find-links='{wheels}'")
"""


@pytest.mark.parametrize(
    "config_list, variables",
    [
        ("", {}),
        ("global.index-url='https://a/simple'", {"UV_INDEX_URL": "https://a/simple"}),
        (
            "global.extra-index-url='https://a/simple\\nfile:///b'",
            {"UV_EXTRA_INDEX_URL": "https://a/simple file:///b"},
        ),
        ("global.index-url='a'\ninstall.index-url='b'", {"UV_INDEX_URL": "b"}),
        (":env:.index-url='c'\nglobal.index-url='a'", {"UV_INDEX_URL": "c"}),
        (":env:.index-url=''\nglobal.index-url='a'", {"UV_INDEX_URL": "a"}),
        ("download.index-url='a'", {}),
        (":env:.find-links='/ /none https://c/'", {"UV_FIND_LINKS": "/,https://c/"}),
        ("user.name='a=b'\nglobal.cert='/a=b.pem'", {"SSL_CERT_FILE": "/a=b.pem"}),
        (":env:.default-timeout='180'", {"UV_HTTP_TIMEOUT": "180"}),
        ("global.proxy='http://p:1'", {"ALL_PROXY": "http://p:1"}),
        ("global.trusted-host='a\\nb'", {"UV_INSECURE_HOST": "a b"}),
    ],
)
def test_uv_gets_the_settings_of_pip(config_list, variables):
    strategy = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    assert (
        install.build_uv_variables(install.parse_pip_settings(config_list), {})
        == strategy | variables
    )


@pytest.mark.parametrize("name", ["UV_INDEX_URL", "UV_DEFAULT_INDEX"])
def test_a_variable_of_uv_that_is_already_set_is_kept(name):
    settings = {"index-url": "a", "find-links": "/"}
    environment = {name: "b", "UV_INDEX_STRATEGY": "first-index"}
    assert install.build_uv_variables(settings, environment) == {"UV_FIND_LINKS": "/"}


def test_the_output_of_pip_config_list_is_parsed(tmp_path):
    text = "[global]\nextra-index-url =\n    file:///a\n    file:///b\n"
    (tmp_path / "pip.conf").write_text(text)
    environment = environ_without("PIP_") | {
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_INDEX_URL": "c",
    }  # fmt: skip
    command = [sys.executable, "-m", "pip", "config", "list"]
    settings = install.parse_pip_settings(
        subprocess.check_output(command, env=environment, text=True)
    )
    assert settings["extra-index-url"].split() == ["file:///a", "file:///b"]
    assert settings["index-url"] == "c"


def environ_without(prefix: str) -> dict[str, str]:
    """Return the environment variables whose names do not have this prefix."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}


def make_wheel(folder: Path, name: str, release: str, requirement: str = "") -> Path:
    """Write a wheel that has one module with the wheel's name."""
    metadata_folder = f"{name}-{release}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n"
    files = {
        f"{name}_module.py": f"release = {release!r}\n",
        f"{metadata_folder}/METADATA": metadata
        + (f"Requires-Dist: {requirement}\n" if requirement else ""),
        f"{metadata_folder}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{metadata_folder}/RECORD"] = "".join(
        f"{path},,\n" for path in [*files, f"{metadata_folder}/RECORD"]
    )
    wheel = folder / f"{name}-{release}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


class Project:
    """A project with an environment, a lock, and a folder of wheels in place of an index."""

    def __init__(self, folder: Path):
        self.folder, self.wheels, self.lock = folder, folder / "wheels", folder / "requirements"
        for subfolder in (self.wheels, self.lock):
            subfolder.mkdir()
        venv.create(folder / ".venv", symlinks=True)
        [self.packages] = (folder / ".venv/lib").glob("python*/site-packages")
        (self.packages / "torch").mkdir()  # so that install.py does not check the disk
        test_packages = Path(sysconfig.get_path("purelib"))
        for name in ("uv", f"uv-{version('uv')}.dist-info"):
            (self.packages / name).symlink_to(test_packages / name)
        (self.packages / "pip.py").write_text(FAKE_PIP.format(wheels=self.wheels))
        (folder / ".venv/bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
        make_wheel(self.wheels, "uv", version("uv"))
        wheel = make_wheel(folder, "project", "1.0")
        (folder / "backend.py").write_text(FAKE_BACKEND.format(wheel=str(wheel), name=wheel.name))
        (folder / "pyproject.toml").write_text(
            "[project]\nname = 'project'\nversion = '1.0'\n"
            "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        )

    def install(self, *lines: str, kind: str = "cpu", should_fail: bool = False) -> str:
        """Install a lock of these lines, and return the output."""
        lock = self.lock / f"{kind}.txt"
        lock.write_text("\n".join([f"uv=={version('uv')}", *lines, ""]))
        environment = environ_without("UV_") | {"UV_CACHE_DIR": str(self.folder / "cache")}
        command = [self.folder / ".venv/bin/python", ROOT / "requirements/install.py", lock]
        ended = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True
        )
        assert bool(ended.returncode) == should_fail, ended.stderr
        return ended.stdout + ended.stderr

    @property
    def installed(self) -> set[str]:
        names = {path.stem for path in self.packages.glob("*.dist-info")}
        return names - {f"uv-{version('uv')}"}


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_the_environment_has_exactly_the_packages_of_the_lock(project):
    make_wheel(project.wheels, "torch", "1.0", requirement="cuda")
    make_wheel(project.wheels, "torch", "1.0+cpu", requirement="nothing_that_exists")
    for version_of_wheel in ("1.0", "2.0"):
        make_wheel(project.wheels, "some", version_of_wheel)
    make_wheel(project.wheels, "stale", "1.0")
    project.install("torch==1.0", "some==2.0", "stale==1.0")
    assert project.installed == {"torch-1.0+cpu", "some-2.0", "stale-1.0", "project-1.0"}
    project.install("torch==1.0", "some==1.0")
    assert project.installed == {"torch-1.0+cpu", "some-1.0", "project-1.0"}


def test_without_a_cpu_build_the_dependencies_of_torch_are_installed(project):
    make_wheel(project.wheels, "torch", "1.0", requirement="cuda>=1")
    for version_of_wheel in ("1.0", "2.0"):
        make_wheel(project.wheels, "cuda", version_of_wheel)
    assert "CUDA libraries" in project.install("torch==1.0")
    assert project.installed == {"torch-1.0", "cuda-2.0", "project-1.0"}
    make_wheel(project.wheels, "torch", "1.0+cpu")
    project.install("torch==1.0")
    assert project.installed == {"torch-1.0+cpu", "project-1.0"}


def test_the_lock_for_gpus_is_installed_without_resolving_dependencies(project):
    make_wheel(project.wheels, "torch", "1.0", requirement="cuda")
    make_wheel(project.wheels, "cuda", "1.0")
    project.install("torch==1.0", kind="gpu")
    assert project.installed == {"torch-1.0", "project-1.0"}


def test_a_failure_is_reported_with_advice(project):
    make_wheel(project.wheels, "torch", "1.0+cpu")
    output = project.install("torch==1.0", "missing==1.0", should_fail=True)
    for words in ("missing", "uv pip install failed", "make setup", "PIP_INDEX_URL", "HTTPS_PROXY"):
        assert words in output


def test_too_little_disk_space_is_reported_before_downloads(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(install.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    monkeypatch.setattr(install, "find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError):  # there is no lock
        install.main(tmp_path / "cpu.txt")
    assert "about 5 GB (more with GPUs), and 1.0 GB are free" in capsys.readouterr().out


FAKE_PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit
echo "$@" >> calls
[ "$2" = venv ] || { test ! -e fails; exit; }
rm -rf .venv && mkdir -p .venv/bin && cp python rapid .venv/bin/
echo "command = /usr/bin/python3 $1 $2 $3 $PWD/$4" > .venv/pyvenv.cfg
"""


@pytest.fixture
def make_setup(tmp_path):
    """Return a function that runs `make setup` with stand-ins for Python and `rapid`.

    The function returns whether `make` succeeded, and the arguments of each call of Python.
    """
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements").mkdir()
    for name in ("requirements/cpu.txt", "requirements/gpu.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    for name, text in {"python": FAKE_PYTHON, "rapid": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(*arguments: str, folder: Path = tmp_path) -> tuple[bool, list[str]]:
        calls = folder / "calls"
        calls.write_text("")
        command = ["make", "setup", "PYTHON=./python", *arguments]
        status = subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode
        return status == 0, calls.read_text().splitlines()

    return run


MAKE_ENVIRONMENT = "-m venv --clear .venv"
INSTALL_CPU_LOCK, INSTALL_GPU_LOCK = (
    f"requirements/install.py requirements/{kind}.txt" for kind in ("cpu", "gpu")
)


def make_newer(folder: Path, kind: str) -> None:
    """Make a lock newer than its last installation, and pyproject.toml older."""
    stamp = (folder / f".venv/installed-{kind}").stat().st_mtime
    os.utime(folder / f"requirements/{kind}.txt", (stamp + 1, stamp + 1))
    os.utime(folder / "pyproject.toml", (stamp - 1, stamp - 1))


def test_only_a_changed_lock_is_installed(make_setup, tmp_path):
    assert make_setup() == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])
    assert make_setup() == (True, [])
    make_newer(tmp_path, "cpu")
    assert make_setup() == (True, [INSTALL_CPU_LOCK])


def test_an_incomplete_environment_is_made_again(make_setup, tmp_path):
    assert make_setup() == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])
    make_newer(tmp_path, "cpu")
    (tmp_path / "fails").touch()
    assert make_setup() == (False, [INSTALL_CPU_LOCK])
    assert make_setup() == (False, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])
    (tmp_path / "fails").unlink()
    assert make_setup() == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])


def test_each_lock_has_its_own_environment_which_is_kept(make_setup, tmp_path):
    assert make_setup() == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])
    assert make_setup("GPU=1") == (True, [MAKE_ENVIRONMENT, INSTALL_GPU_LOCK])
    assert make_setup() == (True, [])
    make_newer(tmp_path, "gpu")
    (tmp_path / "fails").touch()
    assert make_setup() == (False, [INSTALL_GPU_LOCK])
    (tmp_path / "fails").unlink()
    assert make_setup() == (True, [MAKE_ENVIRONMENT, INSTALL_GPU_LOCK])
    assert make_setup("GPU=") == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])


@pytest.mark.parametrize("transfer", [shutil.copytree, shutil.move])
@pytest.mark.parametrize("name", ["copy", "it's a copy"])
def test_a_copied_or_moved_environment_is_made_again(make_setup, tmp_path, transfer, name):
    """Programs and `activate` of an environment contain the path of its folder."""
    first, second = tmp_path / "first", tmp_path / name
    shutil.copytree(tmp_path, first)
    assert make_setup(folder=first) == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])
    transfer(first, second)
    assert make_setup(folder=second) == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])
    assert make_setup(folder=second) == (True, [])


def test_an_environment_that_is_shared_by_a_link_is_kept(make_setup, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        shutil.copytree(tmp_path, folder, ignore=shutil.ignore_patterns("first"))
    assert make_setup(folder=first) == (True, [MAKE_ENVIRONMENT, INSTALL_CPU_LOCK])
    (second / ".venv").symlink_to(first / ".venv")
    assert make_setup(folder=second) == (True, [])


@pytest.mark.parametrize(
    ("target", "stubs", "message"),
    [
        # A program on PATH that does not run, such as one of pyenv, is ignored.
        (["--dry-run"], {"3.13": "exit 127", "3.12": "", "3.11": ""}, "python3.12 -m venv"),
        ([], dict.fromkeys(("3.13", "3.12", "3.11", "3"), "exit 1"), "none is a Python 3.11 to"),
        (["PYTHON=python0"], {}, "python0: none is a Python 3.11 to 3.13"),
        (["PYTHON="], {}, "python3.12 python3.11 python3: none is a Python"),
        (["PYTHON=./python"], {"uname": "echo Darwin"}, "this is Darwin: use the container"),
        (["PYTHON=./python"], {"uname": "echo MINGW64_NT"}, "this is MINGW64_NT: use the cont"),
    ],
)
def test_the_newest_python_that_runs_is_used_or_the_error_gives_advice(
    make_setup, tmp_path, monkeypatch, target, stubs, message
):
    for name, text in stubs.items():
        program = tmp_path / (name if name == "uname" else f"python{name}")
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    command = ["make", "setup", *target]
    result = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert message in result.stdout
    assert bool(result.returncode) == (target != ["--dry-run"])
    assert not (tmp_path / ".venv").exists()
