"""Build the source distribution and the wheel of a release, and check them.

    make dist

writes both into dist/. They are built from the files that Git tracks, so that no left-over of an
earlier build gets in; the wheel is built from the source distribution. README becomes the package's
page on PyPI, where relative links lead nowhere: they become links into the repository that
`project.urls` in pyproject.toml names as Source, at the tag of this version. If it names none,
only their text is left, and pictures are left out.
Exit status: 1 if twine or the page's renderer finds a fault.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from email import message_from_string
from importlib.metadata import version
from pathlib import Path

from rapid import __version__
from tests.checkout import ROOT, copy_checkout
from tests.test_install import install

FILES = ("*.toml", "*.md", "LICENSE", "CITATION.cff", "MANIFEST.in", "rapid")
# A piece of code, which stays as it is, or a relative link.
CODE_OR_LINK = re.compile(
    r"^```.*?^```|`[^`]+`|(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)]+)\)",
    re.MULTILINE | re.DOTALL,
)
# Date of all files in the archives, so that the archives depend on nothing but the files.
EPOCH = "1700000000"


def rewrite_links(page: str, source: str | None) -> str:
    """Return a page in Markdown whose relative links are absolute, or text where that cannot be.

    Args:
        page: the page, at the root of the repository.
        source: address of the repository, such as "https://host/owner/name"; None if it has none.
    """

    def replace(match: re.Match) -> str:
        picture, text, path = match["picture"], match["text"], match["path"]
        if path is None:
            return match[0]
        if source is None:
            return "" if picture else text
        kind = "raw" if picture else "blob"
        return f"{picture}[{text}]({source}/{kind}/v{__version__}/{path})"

    return CODE_OR_LINK.sub(replace, page)


def build_distributions(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution into a folder, which is emptied before.

    They are built with this environment's setuptools.

    Returns:
        The paths of the wheel and of the source distribution.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        checkout = Path(name)
        copy_checkout(checkout, *FILES)
        settings = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
        source = settings["project"].get("urls", {}).get("Source")
        readme = checkout / "README.md"
        readme.write_text(rewrite_links(readme.read_text(encoding="utf-8"), source), "utf-8")
        command = ["-m", "uv", "build", "--quiet", "--no-build-isolation", "--no-create-gitignore"]
        subprocess.run(
            [sys.executable, *command, f"--python={sys.executable}", "--out-dir", folder, checkout],
            env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH}, check=True,
        )  # fmt: skip
    [wheel], [source_distribution] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source_distribution


def read_page(wheel: Path) -> str:
    """Return the text of the project's page from a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(metadata).decode()).get_payload()


def main() -> int:
    """Build both distributions into dist/, check them, and return the exit status."""
    distributions = build_distributions(ROOT / "dist")
    for path in distributions:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.2f} MB", flush=True)
    uv = install.Uv(sys.executable, f"uv=={version('uv')}")
    locked = ["--isolated", "--no-project", f"--python={sys.executable}"]
    locked += ["--with-requirements", ROOT / "requirements/release.txt"]
    with tempfile.TemporaryDirectory() as name:
        page = Path(name, "page.md")
        page.write_text(read_page(distributions[0]), encoding="utf-8")
        checks = [
            ["twine", "check", "--strict", *distributions],
            ["python", "-m", "readme_renderer", page, "--output", page.with_suffix(".html")],
        ]
        run = [sys.executable, "-m", "uv", "run", *locked]
        environment = os.environ | uv.variables
        return max(
            subprocess.run([*run, *check], env=environment, check=False).returncode
            for check in checks
        )


if __name__ == "__main__":
    sys.exit(main())
