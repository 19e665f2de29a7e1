"""Forms of answers get the verdict that they were judged to deserve, in any process and order."""

import json
import random
import subprocess
import sys

import pytest

from rapid.benchmarks.math import made
from rapid.grading.math import grader as grader_module
from tests.grading.math.forms import JudgedForm, judged_forms
from tests.grading.math.respellings import respellings

FORMS = list(judged_forms())
NAMES = sorted({form.problem.unique_id.partition("/")[0] for form in FORMS})


def expected_reward(form: JudgedForm) -> bool:
    """Return whether a form is rewarded: mistakes that are known are written beside their forms."""
    return form.is_right != form.is_mistake


@pytest.mark.parametrize("name", NAMES)
def test_forms_get_their_verdicts(grader, name):
    forms = [form for form in FORMS if form.problem.unique_id.startswith(f"{name}/")]
    rewarded = {form: grader.grade(form.problem, form.completion).reward == 1.0 for form in forms}
    assert [form for form in forms if rewarded[form] != expected_reward(form)] == []


@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_depend_on_no_seed_of_hashes_and_no_order(seed):
    forms = random.Random(seed).sample(FORMS, len(FORMS))
    rows = [(form.problem.answer, form.completion[7:-1], form.problem.problem) for form in forms]
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from compare import compare\n"
        "print(json.dumps([compare(*row) for row in json.load(sys.stdin)]))"
    )
    command = [sys.executable, "-c", script, str(grader_module._WORKER)]
    done = subprocess.run(
        command,
        input=json.dumps(rows),
        env={"PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    verdicts = [reason == "passed" for reason in json.loads(done.stdout)]
    assert verdicts == [expected_reward(form) for form in forms]


@pytest.mark.slow
def test_no_made_question_is_answered_by_respelling_it(grader):
    rng = random.Random(0)
    for index in range(20):
        problem = made.draw(rng, str(index)).problem
        for answer in respellings(problem.problem):
            assert grader.grade(problem, f"\\boxed{{{answer}}}").reward == 0.0, (problem, answer)
