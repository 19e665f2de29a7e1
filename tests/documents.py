"""Numbers, tables and pictures in the documents come from commands and results.

    make figures-of-docs                              print how the documents would change
    python -m tests.documents --write                 change the documents
    python -m tests.documents --time "make tables"    run a command, and record how long it took

A document marks a generated text: `<!-- figures: table1 mbpp_plus -->` stands before it, and
`<!-- end -->` after it. The mark names a generator function of this file, such as `table1`, and its
arguments. It may end in `; by COMMAND`: the command that writes the files which the function reads.
The function takes the text between the marks and returns it with present values. In prose marked
with `within FILE...`, a number that is in none of the files is replaced by a question mark.

Exit status: 1 if a document would change. If files are missing, the command that writes them is
printed.
"""

import argparse
import difflib
import json
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple

from performance import results, steps
from rapid import cli
from rapid.artifacts.files import write_text
from rapid.artifacts.manifests import describe_hardware, get_commit
from rapid.benchmarks.minif2f.flaws import load_flaws
from rapid.benchmarks.problem_source import describe_sources
from rapid.config.jobs import build_plan, list_jobs
from rapid.config.params import load, read
from rapid.config.specs import BASE, list_dvc_runs
from rapid.cost.roofline import get_gpu_rates
from rapid.text import align_columns, render_markdown_table, shorten_commit
from reports import experiment
from reports.collect import collect_runs, read_problem_sources
from reports.render import text as as_text
from reports.report_data import ReportData
from reports.tables import results as tables
from reports.tables.notes import collect_origin_facts, render_notes
from reports.tables.table import MISSING
from tests.conftest import ROOT
from tests.faults.conftest import COLUMNS, FAULTS
from tests.field_tables import config_fields, fields, logged_metrics, steps_fields
from tests.recorded_pages import arena, indent_lines, load_params, ratios, study
from tests.versions import tested_versions

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = re.compile(r"(<!-- figures: (.+?) -->\n?)(.*?)(<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3}\b)*(?:\.\d+)?")  # 34078, 34,078 or 0.5
INTERVAL = re.compile(r"(?<![\w.])\d[\d.]*\s+\[[−+]?\d[\d.]*,\s+[−+]?\d[\d.]*\]")  # 0.5 [0.4, 0.6]
TIMES = "performance/results/commands.jsonl"
GRADERS = "performance/results/math-graders.json"
FIGURES = "reports/figures"


def table1(text: str, root: Path, benchmark: str, *overlays: str) -> str:
    """Return a benchmark's part of Table 1, with the problems, hardware and code of its runs."""
    data = ReportData.read(load_params(*overlays), root)
    rendered = as_text.render([tables.build_main_table(data)])
    label = data.label_benchmark(benchmark)
    block = re.search(rf"^(?:{re.escape(label)}\n)?(?:  .*\n)+", rendered, re.MULTILINE)[0]
    trained = data.frame[(data.frame.no_summary_reason == "") & (data.frame.algorithm != BASE)]
    origin_notes = render_notes(
        ["hardware", "code"], collect_origin_facts(trained.hardware, trained.commit)
    )
    problems = describe_sources([data.problems[benchmark]])
    return indent_lines([*block.splitlines(), "", problems, *origin_notes])


def sweep(text: str, root: Path, *h_values: str) -> str:
    """Return the rows of `dvc exp show` for RAPID at each H, as a sweep would name them."""
    values, rows = read(ROOT / "params.yaml"), []
    for number, h in enumerate(h_values, 1):
        values["rapid"]["H"] = int(h)
        params = load(values)
        frame = collect_runs(params, root, list_dvc_runs(params))
        metrics = experiment.average_metrics(params, frame[frame.algorithm != BASE])
        if not metrics:
            return MISSING
        benchmark = params.experiment.benchmark
        problems = read_problem_sources(params, root)[benchmark].label
        cells = (f"{value:.5g}" for value in metrics.values())
        rows.append([f"sweep-{number}", problems, *cells, h])
    return indent_lines(align_columns([["Experiment", "problems", *metrics, "rapid.H"], *rows]))


def plan_rates(text: str, root: Path) -> str:
    """Return the lines of `rapid plan` about the rates that are measured in runs."""
    if not (root / "runs").is_dir() or not (root / "reports/studies").is_dir():
        return MISSING
    files = ["--configfile", f"{ROOT}/params.yaml", "--calibrate", f"{root}/runs"]
    lines = run_and_capture_lines(cli.run, ["plan", *files])
    notes = (note.strip() for note in lines[lines.index("Rates:") + 1 :])
    return indent_lines([part for note in notes for part in textwrap.wrap(note, 96)])


def jobs_of(text: str, root: Path, overlay: str) -> str:
    """Return the text with the number of jobs of an experiment."""
    count = len(list_jobs(load_params(overlay)))
    return re.sub(r"\d+ of \d+ jobs", f"{count} of {count} jobs", text)


def speed(text: str, root: Path, *workloads: str) -> str:
    """Return the text with the range of RapidTrainer's speed relative to GRPOTrainer's at H=4."""
    measured, ratios = results.read_parts(ROOT / results.FOLDER), {name: [] for name in workloads}
    for row in (row for part in "ad" for row in measured[part]["rows"]):
        if row["H"] == 4 and row["workload"] in ratios:
            ratios[row["workload"]].append(row["speedup"][0])
    ranges = iter([f"{min(values):.1f} to {max(values):.1f}" for values in ratios.values()])
    return re.sub(r"[\d.]+ to [\d.]+", lambda _: next(ranges), text)


def minif2f_flaws(text: str, root: Path) -> str:
    """Return the text with the numbers of flaws, and of theorems that have them: all, valid, test."""
    flaws = load_flaws()
    halves = [
        len({flaw.name for flaw in flaws if flaw.split == half}) for half in ("valid", "test")
    ]
    numbers = iter(map(str, (len(flaws), sum(halves), *halves)))
    return re.sub(r"\d+", lambda _: next(numbers), text)


def times(text: str, root: Path) -> str:
    """Return a table of how long commands took, from the fastest machine to the slowest.

    The date is that of the last measurement. A line below explains the letters of the machines.
    """
    records = read_times()
    commands = re.findall(r"^\| `(.*?)` *\|", text, re.MULTILINE)
    machines = sorted({row["hardware"] for row in records if row["command"] in commands})
    letters = dict(zip(machines, ascii_uppercase, strict=False))

    def fill_row(row: re.Match) -> str:
        measured = [record for record in records if record["command"] == row[2]]
        if not measured:
            return row[0]
        minutes = [round(record["seconds"] / 60) for record in measured]
        span = " to ".join(dict.fromkeys([str(min(minutes)), str(max(minutes))]))
        duration = f"{span} minute{'s' * (max(minutes) != 1)}"
        date = max(map(date_and_commit, measured))
        measured_on = ", ".join(sorted(letters[record["hardware"]] for record in measured))
        return f"{row[1]} {duration:16} | {date:19} | {measured_on:10} |"

    table = re.sub(r"^(\| `(.*?)` *\|)[^|]*\|[^|]*\|[^|]*\|", fill_row, text, flags=re.MULTILINE)
    legend = "; ".join(f"{letter}: {machine}" for machine, letter in letters.items())
    note = textwrap.fill(f"Machines: {legend}.", 100)
    return re.sub(r"^Machines:.*?\.$", note, table, flags=re.MULTILINE | re.DOTALL)


def faults(text: str, root: Path) -> str:
    """Return a table of the faults that the suite injected last, by area, and the machine."""
    lines = (ROOT / FAULTS).read_text(encoding="utf-8").splitlines()
    record, *rows = map(json.loads, lines)
    names: dict[str, list[str]] = {}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        area, _, name = row["fault"].partition(": ")
        names.setdefault(area, []).append(name)
        counts[area].update({column: row[column] for column in COLUMNS[1:]})
    heads = ["area and faults", "injected", "handled", "not handled", "skipped"]
    cells = [
        [f"**{area}**: {'; '.join(names[area])}", *(str(count) for count in counts[area].values())]
        for area in names
    ]
    table = render_markdown_table(heads, cells)
    return f"\n{table}\nInjected on: {date_and_commit(record)}, {record['hardware']}.\n"


def math_graders(text: str, root: Path) -> str:
    """Return a table of how often graders of mathematics are wrong, and how long they take."""
    record = json.loads((ROOT / GRADERS).read_text(encoding="utf-8"))
    keys_by_head = {
        "answers": "answers", "correct": "right", "incorrect": "wrong", "grader": "grader",
        "false positives": "false rewards", "false negatives": "lost", "ms per answer": "ms",
    }  # fmt: skip
    cells = [[str(row[key]) for key in keys_by_head.values()] for row in record["rows"]]
    table = render_markdown_table(list(keys_by_head), cells)
    command = "python -m tests.beside_math_verify --math train.jsonl --write"
    commit = shorten_commit(record["commit"], 7)
    return f"\n{table}\nMeasured on one core, at commit {commit}, by\n`{command}`.\n"


def plan_memory(text: str, root: Path, *gpus: str) -> str:
    """Return the memory of the paper's jobs on four GPUs of each kind, and the time of all jobs."""
    rows, totals = {}, []
    for name in gpus:
        files = [str(ROOT / file) for file in ("params.yaml", "experiments/paper.yaml")]
        lines = run_and_capture_lines(
            cli.run, ["plan", "--configfile", *files, "--gpu", name, "--gpus", "4"]
        )
        jobs_that_train = re.compile(
            r"(\S+) +(\S+) +(sft|grpo|pg|dapo|rapid-\S+) .*?([\d.]+) GB .*GB$"
        )
        for line in filter(None, map(jobs_that_train.fullmatch, lines)):
            row = rows.setdefault((line[2], line[3]), {})
            row[name] = max(float(line[4]), row.get(name, 0.0))
        (total,) = (line for line in lines if line.startswith("on 4 GPU"))
        fits = "all jobs fit" if "Will not work as planned:" not in lines else "some do not fit"
        totals.append(f"On 4 {name} GPUs: {total.split(': ')[1].split(' of ')[0]}, and {fits}.")
    memories = [get_gpu_rates(name).memory / 1e9 for name in gpus]
    heads = ["Model", "Job", *(f"{n} ({gb:.0f} GB)" for n, gb in zip(gpus, memories, strict=True))]
    cells = [[*key, *(f"{row[name]:.1f}" for name in gpus)] for key, row in rows.items()]
    return "\n" + render_markdown_table(heads, cells) + "\n" + "\n".join(totals) + "\n"


def planned_memory(text: str, root: Path) -> str:
    """Return a table of the measured memory of training steps, with the planned memory."""
    rows = steps.read_tables(steps.PLANNED_MEMORY)["planned_memory"]
    origins = [f"{row['hardware']}, at commit {shorten_commit(row['commit'], 7)}" for row in rows]
    sentence = f"Measured on: {'; '.join(dict.fromkeys(origins))}."
    return f"\n{steps.render_table('planned_memory', rows)}\n{textwrap.fill(sentence, 100)}\n"


def micro_batches(text: str, root: Path) -> str:
    """Return tables of the memory and the seconds of small micro-batches, and the machine."""
    record, names = steps.read_tables(steps.MICRO_BATCHES), ("trainer_memory", "logit_seconds")
    tables = [steps.render_table(name, record[name]) for name in names]
    commits = [dict.fromkeys(shorten_commit(row["commit"], 7) for row in record[n]) for n in names]
    first, second = map(" and ".join, commits)
    commits_note = f"Commits: {first} (first table), {second} (second table)."
    origins = textwrap.fill(f"Measured on: {record['hardware']}. {commits_note}", 100)
    return "\n" + "\n".join([*tables, origins]) + "\n"


def within(text: str, root: Path, *files: str) -> str:
    """Return prose with a question mark for each number and interval that is in none of the files."""
    numbers, intervals = set(), set()
    for file in files:
        path = next((folder / file for folder in (root, ROOT) if (folder / file).exists()), None)
        if path is None:
            return MISSING
        content = path.read_text(encoding="utf-8")
        numbers |= {number.replace(",", "") for number in NUMBER.findall(content)}
        intervals |= set(INTERVAL.findall(content))
    text = INTERVAL.sub(
        lambda match: match[0] if " ".join(match[0].split()) in intervals else "? [?]", text
    )
    return NUMBER.sub(lambda match: match[0] if match[0].replace(",", "") in numbers else "?", text)


def picture(text: str, root: Path, name: str, *overlays: str) -> str:
    """Return the line that shows a picture, the source of its problems, and the code of its runs."""
    if not picture_paths(root, name, *overlays)[0].exists():
        return MISSING
    data = ReportData.read(load_params(*overlays), root)
    commits = data.frame[data.frame.no_summary_reason == ""].commit
    notes = render_notes(["code"], collect_origin_facts([], commits))
    lines = [describe_sources(data.problems.values()), *notes]
    return "\n".join([text.split("\n")[0], "", *lines]) + "\n"


def picture_paths(root: Path, name: str, *overlays: str) -> tuple[Path, Path]:
    """Return the path of a picture in a report, and the path of its copy in the documents."""
    params = load_params(*overlays)
    original = root / build_plan(params).root / FIGURES / f"{name}.png"
    copy_name = f"{params.name}-{name}.png" if params.name else f"{name}.png"
    return original, ROOT / "docs/figures" / copy_name


GENERATORS = {
    generator.__name__: generator
    for generator in (
        table1, sweep, plan_rates, plan_memory, jobs_of, speed, times, faults, math_graders,
        planned_memory, micro_batches, steps_fields, logged_metrics, fields, config_fields, within,
        arena, study, ratios, picture, tested_versions, minif2f_flaws,
    )
}  # fmt: skip


def run_and_capture_lines(command: Callable, arguments: list[str]) -> list[str]:
    """Return the lines that a command prints."""
    with redirect_stdout(StringIO()) as output:
        command(arguments)
    return output.getvalue().splitlines()


def date_and_commit(measured: dict) -> str:
    """Return the day, and the code that was measured: 2026-01-02, 0123456+dirty."""
    return f"{measured['date'][:10]}, {shorten_commit(measured['commit'], 7)}"


class Mark(NamedTuple):
    """A marked text in a document."""

    generator: str  # the name of the generator function, and its arguments
    command: str  # the command that writes the files which the function reads, or ""
    text: str  # the text between the marks

    def generate_text(self, root: Path) -> str:
        """Return the text with present values; it contains MISSING or nan if files are missing."""
        name, *arguments = self.generator.split()
        return GENERATORS[name](self.text, root, *arguments)


def read_mark(match: re.Match) -> Mark:
    generator, _, command = " ".join(match[2].split()).partition("; by ")
    return Mark(generator, command, match[3])


def read_marks(page: Path) -> list[Mark]:
    return [read_mark(match) for match in MARK.finditer(page.read_text(encoding="utf-8"))]


def update_page(page: Path, root: Path) -> str:
    """Return a page with present values; print a line for each text whose files are missing."""

    def replace(match: re.Match) -> str:
        mark = read_mark(match)
        text = mark.generate_text(root)
        if mark.command and (MISSING in text or "nan" in text):
            name = page.relative_to(ROOT)
            print(f"{name}: {mark.generator}: files are missing. Run: {mark.command}")
            text = mark.text
        return match[1] + text + match[4]

    return MARK.sub(replace, page.read_text(encoding="utf-8"))


def copy_pictures(page: Path, root: Path) -> None:
    """Copy the pictures of a page from reports to the documents."""
    for mark in read_marks(page):
        function, *arguments = mark.generator.split()
        if function == "picture":
            original, copy = picture_paths(root, *arguments)
            if original.exists():
                shutil.copy(original, copy)


def read_times() -> list[dict]:
    """Return the recorded times of commands: a row for each command and machine."""
    return list(map(json.loads, (ROOT / TIMES).read_text(encoding="utf-8").splitlines()))


def record_time(command: str) -> None:
    """Run a command, and record how long it took in place of this machine's earlier time."""
    commit, start_time = get_commit(), time.monotonic()
    subprocess.run(command, shell=True, cwd=ROOT, check=True)
    seconds = round(time.monotonic() - start_time, 1)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    key = {"command": command, "hardware": describe_hardware()}
    rows = [row for row in read_times() if not key.items() <= row.items()]
    rows.append(key | {"seconds": seconds, "date": date, "commit": commit})
    rows.sort(key=lambda row: (row["command"], row["hardware"]))
    write_text(ROOT / TIMES, "".join(json.dumps(row) + "\n" for row in rows))


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.documents", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--write", action="store_true", help="change the documents")
    parser.add_argument(
        "--time", metavar="COMMAND", help="run a command, and record how long it took"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="folder that contains runs/")
    options = parser.parse_args(arguments)
    if options.time:
        record_time(options.time)
        return 0
    differing = 0
    for page in PAGES:
        name, old = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        new = update_page(page, options.root)
        lines = [text.splitlines(keepends=True) for text in (old, new)]
        sys.stdout.writelines(difflib.unified_diff(*lines, name, f"{name}, updated"))
        differing += old != new
        if options.write and old != new:
            write_text(page, new)
            copy_pictures(page, options.root)
    return 1 if differing and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
