"""The closed list of verdict reasons: their rewards, the processes that use them, and their page."""

import re

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import process
from rapid.grading.verdicts import INFRASTRUCTURE, select_reasons
from tests.checkout import ROOT


def test_only_passed_is_rewarded_and_ungraded_completions_have_no_reward():
    rewards = {reason: verdicts.build_verdict(reason).reward for reason in verdicts.REASONS}
    assert rewards.pop("infrastructure") is rewards.pop("bad_problem") is None
    assert {reason for reason, reward in rewards.items() if reward != 0.0} == {"passed"}
    assert rewards["passed"] == 1.0


def test_an_unknown_reason_is_refused():
    with pytest.raises(ValueError, match="unlucky"):
        verdicts.build_verdict("unlucky")


# The grader decides outside the sandbox whether outputs are right and when the time is up.
SANDBOX_REASONS = select_reasons("code", excluded=["passed", "wrong_answer", "timeout"])
MATH_REASONS = select_reasons("math", excluded=["no_answer"]) | {INFRASTRUCTURE}
LEAN_REASONS = set().union(*process.ANSWERS.values())
# For the processes of each grader: their sources, the pattern of a reason in them, and the reasons.
PROCESSES = {
    "code": ("code/runner", "*.py", r"return \"(\w+)\"", SANDBOX_REASONS),
    "math": (
        "math/worker", "[_c]*.py", r"(?:return|else) \"(\w+)\"", MATH_REASONS
    ),
    "WebAssembly Lean": (
        "lean/wasm", "*.js", r"(?:Refusal\(|why: |why = .*[?:] )'([\w ]+)'", LEAN_REASONS
    ),
    "native Lean": ("lean", "Checker.lean", r"why := \"([\w ]+)\"", LEAN_REASONS - {"memory"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSES)
def test_the_processes_of_a_grader_use_exactly_their_listed_reasons(name):
    folder, files, pattern, reasons = PROCESSES[name]
    sources = [path.read_text("utf-8") for path in (ROOT / "rapid/grading" / folder).glob(files)]
    reasons_in_sources = {reason for source in sources for reason in re.findall(pattern, source)}
    assert reasons_in_sources == reasons


def test_the_benchmarks_page_lists_the_reasons_and_their_meanings():
    text = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    table = re.search(r"^\| reason .*?\n\n", text, re.MULTILINE | re.DOTALL)[0]
    rows = dict(re.findall(r"^\| `(\w+)` +\| (.*?) +\|$", table, re.MULTILINE))
    assert rows == {name: reason.meaning for name, reason in verdicts.REASONS.items()}
