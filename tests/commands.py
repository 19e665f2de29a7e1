"""Run the commands of the documents in order in a fresh clone, as `make test-docs` does.

    python -m tests.commands            run them
    python -m tests.commands --list     list what is run, and what is left out and why

The commands are the lines of indented blocks in README.md, CONTRIBUTING.md and docs/*.md that begin
with one of `PROGRAMS`. commands.yaml in this folder lists commands that are left out, with reasons,
and commands whose exit status is not 0 in a clone without results. The commands are run with the
active environment and the clone's code.

Exit status: 1 if a command fails, or a line of such a block is neither a command nor declared.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from rapid.arguments import Parser
from tests.checkout import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = (
    "apptainer", "docker", "dvc", "git", "make", "python", "python3", "rapid", "ruff", "snakemake",
    "tensorboard", ".", "GPU=1",
)  # fmt: skip
BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
REMARK = re.compile(r"\s{3,}.*|\s+#.*")  # a remark after a command in its line
SECONDS = 900  # limit for a command, whose jobs may wait for cores


class Command(NamedTuple):
    """A command of a page."""

    page: str
    text: str


class Declarations(NamedTuple):
    """The content of commands.yaml: reasons and exit statuses by command."""

    left_out: dict[str, str]
    statuses: dict[str, int]


def read_declarations() -> Declarations:
    """Return the content of commands.yaml."""
    values = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    reasons = values["left_out"].items()
    left_out = {command: reason for reason, commands in reasons for command in commands}
    return Declarations(left_out, values["statuses"])


def extract_commands(text: str) -> tuple[list[str], list[str]]:
    """Return the commands of a page, and the other lines of blocks that begin with a command."""
    commands, other_lines = [], []
    for block in BLOCK.findall(text):
        lines = re.sub(r"\\\n\s+", "", block).splitlines()
        lines = [line.strip().removeprefix("$ ") for line in lines]
        are_commands = [line.split(" ")[0] in PROGRAMS for line in lines]
        for line, is_command in zip(lines, are_commands, strict=True):
            if is_command:
                commands.append(REMARK.sub("", line))
            elif are_commands[0]:
                other_lines.append(line)
    return commands, other_lines


def read_commands() -> tuple[list[Command], list[Command]]:
    """Return the commands of all pages in their order, and the other lines of their blocks."""
    commands, other_lines = [], []
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        lines, other_lines_of_page = extract_commands(page.read_text(encoding="utf-8"))
        commands += [Command(name, line) for line in lines]
        other_lines += [Command(name, line) for line in other_lines_of_page]
    return commands, other_lines


def run_command(command: Command, clone: Path, status: int) -> bool:
    """Run a command in the clone, print how it ended, and return whether that is as declared."""
    start_time = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    try:
        ended = subprocess.run(
            ["bash", "-c", command.text], cwd=clone, env=environment, timeout=SECONDS, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        actual_status, output = ended.returncode, ended.stdout
    except subprocess.TimeoutExpired:
        actual_status, output = -1, f"still running after {SECONDS} s"
    outcome = "ok" if actual_status == status else "FAILED"
    seconds = time.monotonic() - start_time
    print(
        f"{outcome:8}{command.page}: {command.text} (status {actual_status}, {seconds:.0f} s)",
        flush=True,
    )
    if actual_status != status:
        print("\n".join(f"  | {line}" for line in output.splitlines()[-15:]), flush=True)
    return actual_status == status


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = Parser(prog="python -m tests.commands", description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only list what would be run")
    options = parser.parse_args(arguments)
    declarations, (commands, other_lines) = read_declarations(), read_commands()
    failed = [line for line in other_lines if line.text not in declarations.left_out]
    for line in failed:
        print(f"FAILED  {line.page}: neither a command nor declared: {line.text}")
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        if not options.list:
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for command in commands:
            if reason := declarations.left_out.get(command.text):
                print(f"left out {command.page}: {command.text}: {reason}")
            elif options.list:
                print(f"run     {command.page}: {command.text}")
            elif not run_command(command, clone, declarations.statuses.get(command.text, 0)):
                failed.append(command)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
