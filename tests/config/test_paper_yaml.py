"""experiments/paper.yaml: the paper's grid, its Tables 5 to 7, and where each value comes from."""

import re
from collections.abc import Iterator
from itertools import product

import pytest
import yaml

from rapid.benchmarks import BENCHMARKS
from rapid.config import specs
from rapid.config.jobs import jobs
from rapid.config.params import load, read
from rapid.config.specs import Run
from tests.conftest import ROOT

OVERLAY = ROOT / "experiments/paper.yaml"
SMALL, TEACHER = "Qwen2.5-0.5B", "Qwen2.5-32B-Instruct"
OTHERS = ["Qwen2.5-1.5B", "Llama-3.2-1B", "Gemma-3-1B"]
PUBLISHED = {  # section 4.1: problems to train on and to evaluate on; of 12,000 two have no answer
    "mbpp_plus": (264, 114),
    "math": (12_000 - 2, 500),
    "minif2f": (244, 244),
}
SOURCED = re.compile(r"Tables? \d|Figure \d|[Ss]ection \d|Algorithm \d")
UNSAID = re.compile(r"not (?:as )?said: ([A-Z][a-z ]+[a-z])")


@pytest.fixture(scope="module")
def params():
    return load(read(ROOT / "params.yaml", OVERLAY))


@pytest.fixture(scope="module")
def planned(params):
    return jobs(params)


def spec(params, benchmark, algorithm, model=SMALL):
    run = Run(benchmark=benchmark, model=model, algorithm=algorithm, seed=1)
    return specs.train_spec(params, run)


def test_every_run_of_the_tables_is_planned_once(planned):
    table_1 = product(
        PUBLISHED, [SMALL], ["sft", "grpo", "pg", "dapo", "rapid-H4", "rapid-H8"], [1, 2, 3]
    )
    table_2 = product(["mbpp_plus"], OTHERS, ["sft", "grpo", "pg", "dapo", "rapid-H4"], [1])
    table_3 = product(PUBLISHED, [SMALL], [f"rapid-H{h}" for h in (2, 4, 8, 16)], [1, 2, 3])
    expected = {*table_1, *table_2, *table_3}  # Tables 1 and 3 share H = 4 and 8
    found = [job.spec.run for job in planned if job.stage == "train"]
    assert len(found) == len(expected) == 3 * 8 * 3 + 3 * 5
    assert {(run.benchmark, run.model, run.algorithm, run.seed) for run in found} == expected


def test_models_are_published_at_a_commit_and_only_the_teacher_is_instruction_tuned(planned):
    models = [job.spec for job in planned if job.stage == "models"]
    assert {spec.model for spec in models} == {SMALL, *OTHERS, TEACHER}
    for spec in models:
        assert isinstance(spec, specs.FetchSpec)
        assert re.fullmatch(r"[0-9a-f]{40}", spec.params.revision), spec.model
        tuned = re.search(r"-(Instruct|it)$", spec.params.source)
        assert bool(tuned) == (spec.model == TEACHER)


@pytest.mark.parametrize("benchmark", PUBLISHED)
def test_problems_are_the_papers(params, benchmark):
    found = specs.prepare_spec(params, benchmark)
    assert (found.source, found.train, found.test) == ("hub", *PUBLISHED[benchmark])


@pytest.mark.parametrize(("benchmark", "n_step"), [("math", 32), ("mbpp_plus", 4), ("minif2f", 4)])
@pytest.mark.parametrize("algorithm", ["grpo", "pg", "dapo", "rapid-H4"])
def test_rl_runs_have_table_6(params, benchmark, n_step, algorithm):
    found = spec(params, benchmark, algorithm)
    assert found.n_step == n_step
    assert found.max_completion_length == 2048
    assert found.training.learning_rate == 1e-6
    assert found.training.epochs == 3
    assert found.training.group_size == 4
    assert found.training.precision == "bfloat16"
    assert (found.compute.device, found.compute.processes) == ("gpu", 4)


@pytest.mark.parametrize("h", [2, 4, 8, 16])
def test_rapid_is_algorithm_1_with_table_6s_eta(params, h):
    found = spec(params, "math", f"rapid-H{h}")
    assert h == found.H
    algorithm_1 = {"clip": "advantage", "baseline": "group", "weighted": True}
    assert found.objective.model_dump() == {"eta": 2.0} | algorithm_1


@pytest.mark.parametrize(("name", "beta"), [("grpo", 0.04), ("pg", None), ("dapo", None)])
def test_baselines_are_on_policy_and_only_grpo_has_table_6s_kl(params, name, beta):
    found = spec(params, "math", name)
    assert found.H == 1
    assert getattr(found.objective, "beta", None) == beta


@pytest.mark.parametrize("model", [SMALL, *OTHERS])
def test_sft_runs_have_table_5(params, model):
    found = spec(params, "mbpp_plus", "sft", model).objective
    assert found.learning_rate == 2e-5
    assert found.epochs == 3
    assert found.batch == 12 * 4 * 2
    assert found.precision == "float32"


@pytest.mark.parametrize("benchmark", PUBLISHED)
def test_the_teacher_has_table_5(params, benchmark):
    found = specs.distill_spec(params, benchmark)
    assert found.teacher == TEACHER
    assert found.max_completion_length == 2048
    assert (found.temperature, found.top_p, found.samples) == (0.7, 0.95, 5)
    assert found.tensor_parallel == 4


@pytest.mark.parametrize(
    ("benchmark", "pass_at"), [("mbpp_plus", [1, 8]), ("math", [1]), ("minif2f", [1])]
)
def test_evaluations_report_the_papers_pass_at_k(params, benchmark, pass_at):
    run = Run(benchmark=benchmark, model=SMALL, algorithm="base", seed=1)
    found = specs.evaluate_spec(params, run)
    assert found.pass_at == pass_at
    assert found.evaluation.samples == 8


def test_verdicts_may_take_the_graders_usual_time(params):
    for name, sizes in params.benchmarks.items():
        assert sizes.timeout == BENCHMARKS[name].usual_timeout


def test_zero2_is_figure_5(params):
    text = (ROOT / "workflow/accelerate/zero2.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == {
        "compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "debug": False,
        "deepspeed_config": {
            "zero3_init_flag": False, "zero3_save_16bit_model": False, "zero_stage": 2,
            "gradient_clipping": "auto",
        },
        "machine_rank": 0, "num_machines": 1, "num_processes": params.compute.processes,
        "main_training_function": "main", "rdzv_backend": "static", "same_network": True,
        "tpu_env": [], "tpu_use_cluster": False, "tpu_use_sudo": False, "use_cpu": False,
    }  # fmt: skip


def values(node: yaml.Node, path: str = "") -> Iterator[tuple[str, yaml.Node]]:
    """Every value below a node, with its key; a list is one value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from values(value, f"{path}.{key.value}".lstrip("."))
    else:
        yield path, node


def overlay() -> list[tuple[str, yaml.Node]]:
    """Every value of experiments/paper.yaml; its name is ours."""
    found = values(yaml.compose(OVERLAY.read_text(encoding="utf-8")))
    return [(key, node) for key, node in found if key != "name"]


def commented() -> list[tuple[str, str]]:
    """(key, comment) of every value; "" where its line has none."""
    lines = OVERLAY.read_text(encoding="utf-8").splitlines()
    return [(key, lines[node.start_mark.line].partition(" # ")[2]) for key, node in overlay()]


def notes() -> dict[str, str]:
    """The parts of docs/reproduction-notes.md by heading."""
    text = (ROOT / "docs/reproduction-notes.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {heading: body for heading, _, body in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize(("key", "comment"), commented())
def test_each_value_says_where_it_comes_from(key, comment):
    assert SOURCED.search(comment) or UNSAID.search(comment)


@pytest.mark.parametrize(
    ("key", "comment"), [pair for pair in commented() if UNSAID.search(pair[1])]
)
def test_what_the_paper_does_not_say_is_in_the_notes(key, comment):
    body = notes()[UNSAID.search(comment)[1]]
    assert re.search(rf"`{re.escape(key)}[`:]", body)


def test_what_the_notes_say_of_a_value_is_its_value():
    found = {key: yaml.safe_load(yaml.serialize(node)) for key, node in overlay()}
    said = re.findall(r"`([a-z_]+(?:\.[\w.-]+)*): ([^`]+)`", "\n".join(notes().values()))
    assert len(said) > 20
    for key, text in said:
        assert found[key] == yaml.safe_load(text), key
