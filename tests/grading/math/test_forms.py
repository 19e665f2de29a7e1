"""Forms of answers get the verdicts that were judged by hand, in any process and order."""

import json
import random
import subprocess
import sys

import pytest

from rapid.grading.math import grader as grader_module
from tests.grading.math.forms import JudgedForm, load_judged_forms

FORMS = list(load_judged_forms())
FILES = sorted({form.problem.unique_id.partition("/")[0] for form in FORMS})


def should_be_rewarded(form: JudgedForm) -> bool:
    """Return whether the grader is expected to reward a form, with its known mistakes."""
    return form.is_right != form.is_mistake


@pytest.mark.parametrize("file", FILES)
def test_each_form_gets_the_verdict_that_it_deserves(grader, file):
    forms = [form for form in FORMS if form.problem.unique_id.startswith(f"{file}/")]
    rewarded = {form: grader.grade(form.problem, form.completion).reward == 1.0 for form in forms}
    assert [form for form in forms if rewarded[form] != should_be_rewarded(form)] == []


@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_do_not_depend_on_the_hash_seed_or_the_order(seed):
    forms = random.Random(seed).sample(FORMS, len(FORMS))
    rows = [(form.problem.answer, form.completion[7:-1], form.problem.problem) for form in forms]
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from compare import compare\n"
        "print(json.dumps([compare(*row) for row in json.load(sys.stdin)]))"
    )
    command = [sys.executable, "-c", script, str(grader_module._WORKER)]
    ended = subprocess.run(
        command,
        input=json.dumps(rows),
        env={"PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    rewarded = [reason == "passed" for reason in json.loads(ended.stdout)]
    assert rewarded == [should_be_rewarded(form) for form in forms]
