"""Reward functions for any trainer give the graders' verdicts, in every process, and end with it."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import pytest

from rapid import rewards
from rapid.grading.code import sandbox
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.math.grader import MathGrader
from rapid.rewards import CodeReward, MathReward, code_reward, lean_reward, math_reward
from tests.benchmarks.test_hub_mbpp import make_row as make_hub_row
from tests.benchmarks.test_prompts import PROBLEMS
from tests.conftest import ROOT
from tests.grading.code.attacks import FORBIDDEN_ACTIONS, FORGERIES, OUTPUTS, RIGHT, SOURCES
from tests.grading.lean.test_proofs import FALSE, FORBIDDEN, NOT_PROVED, PROOFS
from tests.grading.math.attacks import ATTACKS, PENS, split_answers
from tests.subprocesses import filter_living, wait_for

TESTS = ["assert f(1) == 2", "assert f(-7) == -14", "assert f(10**2) == 200"][:2]
DOUBLE = {"tests": [TESTS]}


NAMED = "def double(n): return 2 * n"


RELEASE = PROBLEMS["mbpp_plus"].model_dump(exclude={"prompt"})


def grade(reward, completion, **columns) -> tuple[float | None, str]:
    """Return the reward of a completion, and the reason of its verdict."""
    [value] = reward([""], [completion], **columns)
    [verdict] = reward.grade([""], [completion], **columns)
    return value, verdict.reason


# Verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (r"It is $\boxed{91}$.", (1.0, "passed")),
        (r"\boxed{90}, or \boxed{91 \text{ pens}}", (1.0, "passed")),
        (r"\boxed{91}, or \boxed{90}", (0.0, "wrong_answer")),
        ("It is 91.", (0.0, "no_answer")),
        (r"\boxed{\input{91}}", (0.0, "unparsable")),
    ],
)
def test_math_reward_is_that_of_the_last_box(completion, expected):
    assert grade(math_reward, completion, answer=["91"], question=[PENS]) == expected


def test_math_attacks_have_no_reward():
    for (question, answer), text in ATTACKS.items():
        boxes = [f"\\boxed{{{attack}}}" for attack in split_answers(text)]
        columns = {"answer": [answer] * len(boxes), "problem": [question] * len(boxes)}
        assert {*math_reward([""] * len(boxes), boxes, **columns)} == {0.0}, question


@pytest.mark.parametrize("answer", ["91", 91, "34 + 57 = 91\n#### 91", r"So we have $\boxed{91}$."])
def test_an_answer_may_be_a_number_or_the_end_of_a_solution(answer):
    assert math_reward([PENS] * 2, [r"\boxed{91}", r"\boxed{90}"], answer=[answer] * 2) == [1, 0]


@pytest.mark.parametrize("answer", [0.1, True, ["91"]])
def test_other_types_of_answers_are_refused(answer):
    with pytest.raises(ValueError, match=r"math_reward: answer is .* make it text"):
        math_reward([PENS], [""], answer=[answer])


@pytest.mark.parametrize("chat", [False, True])
def test_the_question_decides_the_form(chat):
    """It is the row's, else the prompt without what the system says."""
    half, decimal = r"\boxed{\frac12}", "Write a half as a decimal."
    system = {"role": "system", "content": "Answers are fractions."}
    prompt = [system, {"role": "user", "content": decimal}] if chat else decimal
    for columns in ({}, {"problem": [None]}, {"question": [decimal]}):
        assert math_reward([prompt], [half], answer=["0.5"], **columns) == [0.0]
    assert math_reward([prompt], [half], answer=["0.5"], problem=["What is a half?"]) == [1.0]


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(
    ("columns", "program"),
    [
        (DOUBLE, RIGHT),
        ({"tests": ["assert f(1) == 2\nassert f(0.1) == 0.2"]}, RIGHT),
        ({name: [value] for name, value in make_hub_row().items()}, NAMED),
    ],
)
def test_code_reward_runs_the_tests_of_any_row(columns, program, chat):
    programs = [f"```python\n{program}\n```", program.replace("2", "3")]
    if chat:
        programs = [[{"role": "assistant", "content": text}] for text in programs]
    given = [column * 2 for column in columns.values()]
    columns = dict(zip(columns, given, strict=True))
    assert code_reward([""] * 2, programs, **columns) == [1.0, 0.0]


@pytest.mark.parametrize("encode", [json.dumps, lambda inputs: inputs])
def test_code_reward_takes_rows_of_the_release(encode):
    inputs = {name: encode(RELEASE[name]) for name in ("base_input", "plus_input")}
    columns = {name: [value] for name, value in (RELEASE | inputs).items()}
    assert grade(code_reward, NAMED, **columns) == (1.0, "passed")
    assert grade(code_reward, NAMED.replace("2 *", "2 +"), **columns) == (0.0, "wrong_answer")


def test_tests_compare_values_and_types_of_containers():
    tests = [
        "assert f((1, 2)) == [1, {2: (3,)}]",
        "assert f({1}) is None",
        "assert f('a')",
        "assert not f(-1.5)",
    ]
    right = """
        def f(x):
            return {str: True, float: False, set: None, tuple: [1, {2: (3,)}]}[type(x)]
    """
    assert grade(code_reward, textwrap.dedent(right), tests=[tests]) == (1.0, "passed")
    wrong = right.replace("(3,)", "[3]")
    assert grade(code_reward, textwrap.dedent(wrong), tests=[tests]) == (0.0, "wrong_answer")


HOSTILE = FORGERIES | FORBIDDEN_ACTIONS | OUTPUTS | SOURCES


def test_hostile_programs_have_no_reward():
    """Their expected outputs are literals in the row's tests, which do not enter the sandbox."""
    names = [name for name in HOSTILE if name != "an encoding"]
    reward = CodeReward(timeout=2)
    programs = [HOSTILE[name][0] for name in names]
    verdicts = reward.grade([""] * len(names), programs, tests=[TESTS] * len(names))
    for name, verdict in zip(names, verdicts, strict=True):
        assert verdict.reward == 0.0 and verdict.reason in HOSTILE[name][1] | {"timeout"}, name
    assert reward([""], [RIGHT], **DOUBLE) == [1.0]


def test_lean_reward_is_for_proofs():
    for label in ("kernel evaluation", "witness"):
        statement, proof = PROOFS[label]
        assert grade(lean_reward, proof, theorem=[statement]) == (1.0, "passed")
    for table in (NOT_PROVED, FORBIDDEN):
        statement, proof = next(iter(table.values()))
        assert lean_reward([""], [proof], formal_statement=[statement], header=[None]) == [0.0]
    whole = [{"role": "assistant", "content": f"```lean4\n{FALSE}  sorry\n```"}]
    assert grade(lean_reward, whole, theorem=[FALSE + "sorry"]) == (0.0, "forbidden")


def test_the_last_message_of_the_assistant_counts():
    """In its text, where it has blocks of other kinds; what a tool says is no answer."""
    said = {"role": "assistant", "content": [{"type": "text", "text": r"\boxed{1}"}, {"type": "x"}]}
    tool = {"role": "tool", "content": r"\boxed{2}"}
    called = {"role": "assistant", "content": None}
    completions = [[called, tool, said], [said, tool], [said, called], [tool], []]
    verdicts = math_reward.grade([""] * 5, completions, answer=["1"] * 5)
    no_answer = ["no_answer"] * 3
    assert [verdict.reason for verdict in verdicts] == ["passed", "passed", *no_answer]


# What is not graded ----------------------------------------------------------------------------


def test_none_where_the_grader_died_until_it_is_too_much(monkeypatch):
    def die(*_):
        raise GraderDied("killed in a test")

    reward = MathReward(timeout=7)
    with monkeypatch.context() as patch:
        patch.setattr(MathGrader, "_compare", die)
        assert reward(["", ""], [r"\boxed{3}", r"\boxed{2}"], answer=["2", "2"]) == [None, 1.0]
        with pytest.raises(GradingFailed, match="killed in a test"):
            reward([""], [r"\boxed{4}"], answer=["2"])


def test_without_a_sandbox_there_is_an_error(monkeypatch):
    monkeypatch.setattr(sandbox, "LAYERS", ())
    for _ in range(2):
        with pytest.raises(sandbox.SandboxError, match="Install bubblewrap"):
            CodeReward(timeout=3)([""], [RIGHT], **DOUBLE)


def test_rows_of_other_kinds_are_left_to_other_rewards():
    columns = {"answer": ["1", None], "tests": [None, TESTS], "theorem": [None, None]}
    completions = [r"\boxed{1}", RIGHT]
    assert math_reward(["", ""], completions, **columns) == [1.0, None]
    assert code_reward(["", ""], completions, **columns) == [None, 1.0]
    assert lean_reward(["", ""], completions, **columns) == [None, None]


BAD = [
    (code_reward, {n: [v] for n, v in (RELEASE | {"plus_input": "[[2"}).items()}, "Mbpp/0: "),
    (math_reward, {"answer": [" "]}, "empty answer"),
    (code_reward, {"tests": [["assert f(open('x')) == 1"]]}, "with literals"),
    (code_reward, {"tests": [["assert f(x=1) == 1"]]}, "with literals"),
    (code_reward, {"tests": [["import os"]]}, "with literals"),
    (code_reward, {"tests": [["assert f(1) =="]]}, "invalid syntax"),
    (code_reward, {"tests": [["assert f(1) == 1", "assert g(1) == 1"]]}, "call f, g"),
    (code_reward, {"tests": [[]]}, "call no function"),
    (
        code_reward,
        {n: [v] for n, v in make_hub_row(inputs="").items()},
        "its test program has no inputs",
    ),
    (lean_reward, {"theorem": ["example : 1 = 1 := rfl"]}, "no theorem"),
    (lean_reward, {"theorem": ["theorem a : Undefined := by"]}, "Undefined"),
]


@pytest.mark.parametrize(("reward", "columns", "why"), BAD)
def test_problems_at_fault_are_named_once_and_not_graded(reward, columns, why, caplog):
    columns = {name: values * 2 for name, values in columns.items()}
    verdicts = reward.grade(["", ""], [RIGHT, RIGHT], **columns)
    assert [(v.reward, v.reason) for v in verdicts] == [(None, "bad_problem")] * 2
    [message] = [text for text in caplog.messages if "not graded" in text]
    assert why in message


@pytest.mark.parametrize("reward", [math_reward, code_reward, lean_reward])
def test_a_missing_column_is_named_with_those_there_are(reward):
    columns = {"solution": ["1"], "trainer_state": None, "log_extra": print, "completion_ids": [[]]}
    with pytest.raises(ValueError) as raised:
        reward([""], ["x"], **columns)
    message = str(raised.value)
    assert message.startswith(f"{reward.__name__} needs the column '{reward.column_sets[0][0]}'")
    assert "the dataset has 'solution'. Rename one" in message


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"timeout": float("nan")}, {"workers": 0}])
def test_settings_out_of_bounds_are_refused(settings):
    with pytest.raises(ValueError, match="set timeout > 0, workers >= 1"):
        MathReward(**settings)


# Processes -------------------------------------------------------------------------------------


def test_a_reward_has_settings_and_can_be_sent_to_another_process():
    reward = CodeReward(timeout=5, workers=3)
    copied = pickle.loads(pickle.dumps(reward))
    assert (copied.timeout, copied.workers, copied.__name__) == (5, 3, "code_reward")
    assert pickle.loads(pickle.dumps(math_reward))([""], [r"\boxed{1}"], answer=["1"]) == [1.0]


def test_workers_are_a_process_s_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(24))
    assert rewards.count_cores() == 24
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert rewards.count_cores() == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "48")
    assert rewards.count_cores() == 1


def grade_alone(numbers: range) -> list[float | None]:
    boxes = [f"\\boxed{{1 + {n}}}" for n in numbers]
    return math_reward([""] * len(boxes), boxes, answer=["1+2"] * len(boxes))


def test_processes_grade_at_the_same_time_forked_or_not():
    expected = [float(n == 2) for n in range(20)]
    assert grade_alone(range(20)) == expected
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            results = pool.map_async(grade_alone, [range(20)] * 4, chunksize=1)
            assert grade_alone(range(20)) == expected
            assert results.get(300) == [expected] * 4


SCRIPT = """
import json, os, psutil, signal, sys
from rapid.rewards import code_reward, lean_reward, math_reward

def grade(number):
    values = math_reward([""], [rf"\\boxed{{1/{number}+1}}"], answer=["1"])
    values += code_reward([""], [f"def f(x): return {number} * x"], tests=[["assert f(1) == 2"]])
    if WITH_LEAN:
        values += lean_reward([""], [f"  exact Nat.lt_of_sub_eq_succ (by rfl : {number} = 3)"],
                              theorem=["theorem a : 1 < 4 := by"])
    return values

def pids():
    return sorted(child.pid for child in psutil.Process().children(recursive=True))

first, started = grade(2), pids()
"""
ENDINGS = {
    "at its end": "",
    "by an error": "sys.excepthook = lambda *_: None\nraise ValueError",
    "by SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "by SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "by close, to start again": (
        "from rapid.rewards import close\nclose()\nassert not pids()\n"
        "assert grade(3) and pids() and not {*pids()} & {*started}"
    ),
    "after a fork": """
child = os.fork()
if child == 0:
    first_again = grade(2)
    own = {*pids()}
    assert first_again == first and own and not own & {*started}
    assert grade(3)[1] == 0.0 and own <= {*pids()}
    sys.exit(0)  # what runs at exit ends its own processes alone
assert os.waitpid(child, 0)[1] == 0
assert grade(3)[1] == 0.0 and {*started} <= {*pids()}
""",
    "before a fork of it": """
if os.fork() == 0:
    import time
    os.close(1), os.close(2)
    time.sleep(60)  # has none of the parent's processes, and keeps none of them alive
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("with_lean", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_graders_end_with_their_process(ending, with_lean):
    script = SCRIPT.replace("WITH_LEAN", str(with_lean))
    script += f"print(json.dumps([os.getpid(), first, started]), flush=True)\n{ENDINGS[ending]}"
    run = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    output, _ = run.communicate(timeout=300)
    pid, values, started = json.loads(output)
    assert values[:2] == [0.0, 1.0] and len(started) >= 2
    statuses = {"by an error": 1, "by SIGTERM": -signal.SIGTERM}
    assert run.returncode == (
        -signal.SIGKILL if "SIGKILL" in ENDINGS[ending] else statuses.get(ending, 0)
    )
    wait_for(lambda: not filter_living(pid, *started), 10)


# Trainers --------------------------------------------------------------------------------------


@pytest.fixture
def trainer_arguments(toy_model):
    from datasets import Dataset
    from transformers import AutoTokenizer

    rows = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
    return {
        "model": str(toy_model),
        "reward_funcs": math_reward,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": AutoTokenizer.from_pretrained(toy_model, padding_side="left"),
    }


def test_a_stock_trainer_takes_a_reward(trainer_arguments, tmp_path, monkeypatch):
    from trl import GRPOConfig, GRPOTrainer

    from tests.training.loops import COMMON, logged_values

    texts = iter([r"\boxed{1}", "?"] * 1000)
    monkeypatch.setattr(
        "trl.trainer.grpo_trainer.GRPOTrainer._calculate_rewards",
        with_completions(GRPOTrainer._calculate_rewards, texts),
    )
    sizes = {"per_device_train_batch_size": 8, "max_steps": 2, "max_completion_length": 6}
    trainer = GRPOTrainer(**trainer_arguments, args=GRPOConfig(str(tmp_path), **COMMON | sizes))
    trainer.train()
    means = logged_values(trainer, "rewards/math_reward/mean")
    assert len(means) == 2 and all(0 <= mean <= 0.5 for mean in means)


def with_completions(calculate, texts):
    """Return TRL's method, with other completions: an untrained model has no answer."""

    def _calculate_rewards(self, inputs, prompts, completions, ids):
        return calculate(self, inputs, prompts, [next(texts) for _ in completions], ids)

    return _calculate_rewards


@pytest.mark.parametrize("workers", [0, 2])
def test_rapid_trainer_takes_a_reward(trainer_arguments, tmp_path, workers):
    from rapid import RapidConfig, RapidTrainer
    from tests.training.loops import COMMON, logged_values

    sizes = {"H": 2, "n_step": 8, "max_steps": 2, "max_completion_length": 6}
    args = RapidConfig(str(tmp_path), **COMMON | sizes, grading_workers=workers)
    trainer = RapidTrainer(**trainer_arguments, args=args)
    trainer.train()
    assert logged_values(trainer, "rewards/math_reward/mean") == [0.0]
