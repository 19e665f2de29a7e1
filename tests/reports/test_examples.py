"""The completions that report.html shows: which they are, and that none of them is obeyed."""

import pytest

from rapid.artifacts.evaluations import ExampleCompletion
from rapid.config.params import load
from rapid.config.specs import BASE, list_arena_runs
from tests.reports.conftest import add_arena, make_run, write_report
from tests.reports.html_rules import check_elements

HOSTILE = "</pre><script>alert(1)</script> & \x1b[2J {{ 7 * 7 }} \N{RIGHT-TO-LEFT OVERRIDE}"
ANSWERS = {
    BASE: ("no_answer", "I cannot"),
    "pg": ("unparsable", HOSTILE),
    "rapid-H4": ("passed", "3"),
}


@pytest.fixture
def page(values, runs) -> str:
    return write_page(values, runs)


def write_page(values, runs, kept: int = 2) -> str:
    """Write the arena's report.html, in whose evaluations some completions are kept; return it."""
    claims = [{"ours": "rapid-H4", "theirs": "pg", "by": "accuracy"}]
    values = add_arena(values, {"pg": 1e-4, "rapid-H4": 1e-4}, claims=claims)
    params = load(values)
    for run in [make_run(BASE, 1), *list_arena_runs(params)]:
        reason, text = ANSWERS[run.algorithm.partition(",")[0]]
        shown = [
            ExampleCompletion(
                id=f"p{number}", problem=f"<b>{number}</b>?", reason=reason, completion=text
            )
            for number in range(kept)
        ]
        runs.write_scores(run, [8, 0], examples=shown if run.seed == 1 else [])
        if run.algorithm != BASE:
            runs.write_summary(run)
    page = write_report(values, runs.root, "--arena") / "report.html"
    return page.read_text(encoding="utf-8")


def test_each_problem_has_the_answer_of_each_model(page):
    section = page.partition('<section id="examples">')[2].partition("</section>")[0]
    assert section.count("<figure") == 2 and section.count("<pre>") == 6
    models = ("Base, seed 1", "PG, seed 1", "RAPID (", "no answer", "unparsable", "passed")
    positions = [section.index(text) for text in models]
    assert positions[:3] == sorted(positions[:3])
    assert section.count('class="verdict holds"') == 2
    assert section.count('class="verdict fails"') == 4


def test_completions_and_problems_are_escaped(page):
    check_elements(page)
    assert 'href="#examples"' in page
    assert "alert(1)&lt;/script&gt; &amp; \\x1b[2J {{ 7 * 7 }} \\u202e" in page
    assert "<script>alert" not in page and "<b>0</b>" not in page
    assert "\x1b" not in page and "\N{RIGHT-TO-LEFT OVERRIDE}" not in page


def test_page_without_kept_completions_has_no_such_section(values, runs):
    assert "#examples" not in write_page(values, runs, kept=0)
