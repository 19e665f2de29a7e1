"""The closed set of reasons: what each is worth, who says it, and what documents say of it."""

import re

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import process
from rapid.grading.verdicts import INFRASTRUCTURE, select_reasons
from tests.checkout import ROOT


def test_only_passed_is_rewarded_and_what_was_not_graded_has_no_reward():
    rewards = {reason: verdicts.verdict(reason).reward for reason in verdicts.REASONS}
    assert rewards.pop("infrastructure") is rewards.pop("bad_problem") is None
    assert {reason for reason, reward in rewards.items() if reward != 0.0} == {"passed"}
    assert rewards["passed"] == 1.0


def test_reasons_are_closed():
    with pytest.raises(ValueError, match="unlucky"):
        verdicts.verdict("unlucky")


# What is right, and when the time is up, is decided outside.
CHILD_WORDS = select_reasons("code", but=["passed", "wrong_answer", "timeout"])
MATH_WORDS = select_reasons("math", but=["no_answer"]) | {INFRASTRUCTURE}
LEAN_WORDS = set().union(*process.ANSWERS.values())
# By the processes of a grader: their sources, the pattern of a word that they say, and the words.
PROCESSES = {
    "code": ("code/runner", "*.py", r"return \"(\w+)\"", CHILD_WORDS),
    "math": (
        "math/worker", "[_c]*.py", r"(?:return|else) \"(\w+)\"", MATH_WORDS
    ),
    "WebAssembly Lean": (
        "lean/wasm", "*.js", r"(?:Refusal\(|why: |why = .*[?:] )'([\w ]+)'", LEAN_WORDS
    ),
    "native Lean": ("lean", "Checker.lean", r"why := \"([\w ]+)\"", LEAN_WORDS - {"memory"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_says_reasons_of_the_list(name):
    folder, files, pattern, words = PROCESSES[name]
    sources = [path.read_text("utf-8") for path in (ROOT / "rapid/grading" / folder).glob(files)]
    words_found = {word for source in sources for word in re.findall(pattern, source)}
    assert words_found == words


def test_the_document_has_the_reasons_and_their_meanings():
    text = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    table = re.search(r"^\| reason .*?\n\n", text, re.MULTILINE | re.DOTALL)[0]
    rows = dict(re.findall(r"^\| `(\w+)` +\| (.*?) +\|$", table, re.MULTILINE))
    assert rows == {name: reason.meaning for name, reason in verdicts.REASONS.items()}
