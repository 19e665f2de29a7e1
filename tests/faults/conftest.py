"""Count the faults that the suite injects: `make test-faults`.

A test of a fault has the mark `@pytest.mark.fault("area: fault")`, with `times=N` if it injects the
fault N times. If the test passes, the outcome was the one that docs/reliability.md defines, and all
injections count as survived, else as lost. A fault that cannot be injected here is skipped.
`--record-faults` writes the counts to the file from which docs/reliability.md takes its table.
"""

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime

import pytest

from rapid.artifacts.files import write_text
from rapid.artifacts.manifests import describe_hardware, get_commit
from rapid.text import align_columns
from tests.conftest import ROOT

FAULTS = "performance/results/faults.jsonl"
COLUMNS = ("fault", "injected", "survived", "lost", "skipped")  # keys of that file
CODE = get_commit()  # the tested commit; the tree may change while tests run
OUTCOMES: dict[str, tuple[str, str, int]] = {}  # the fault, column and count of each test


def make_fault_cases(injections: dict, times: int | None = None) -> list:
    """Return a case for each named fault, which injects it `times` times or once for each of its values."""
    return [
        pytest.param(
            injection, id=name, marks=pytest.mark.fault(name, times=times or len(injection))
        )
        for name, injection in injections.items()
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-faults", action="store_true", help=f"write the table to {FAULTS}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if mark := item.get_closest_marker("fault"):
            item.user_properties.append(("fault", [*mark.args, mark.kwargs.get("times", 1)]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a test's outcome from its call, or from an error of its set-up or tear-down."""
    fault, count = dict(report.user_properties).get("fault", ("", 0))
    if fault and (report.when == "call" or not report.passed):
        column = "skipped" if report.skipped else "survived" if report.passed else "lost"
        OUTCOMES[report.nodeid] = fault, column, count


def build_table() -> list[dict]:
    """Return a row for each fault."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for fault, column, count in OUTCOMES.values():
        counts[fault].update({column: count, "injected": 0 if column == "skipped" else count})
    return [
        {"fault": fault} | {column: counts[fault][column] for column in COLUMNS[1:]}
        for fault in sorted(counts)
    ]


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if not (rows := build_table()):
        return
    terminalreporter.section("faults")
    cells = [[str(row[column]) for column in COLUMNS] for row in rows]
    terminalreporter.write_line("\n".join(align_columns([COLUMNS, *cells], flush_left=1)))
    if config.getoption("--record-faults", False):
        date = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [{"date": date, "commit": CODE, "hardware": describe_hardware()}, *rows]
        write_text(ROOT / FAULTS, "".join(json.dumps(line) + "\n" for line in lines))
