"""experiments/paper.yaml has the paper's experiments, and a source for each value."""

import re
from itertools import product

import pytest
import yaml

from rapid.benchmarks import BENCHMARKS
from rapid.config import specs
from rapid.config.jobs import list_jobs
from rapid.config.params import load, read
from rapid.config.specs import Run
from tests.conftest import ROOT

OVERLAY = ROOT / "experiments/paper.yaml"
SMALL, TEACHER = "Qwen2.5-0.5B", "Qwen2.5-32B-Instruct"
OTHER_MODELS = ["Qwen2.5-1.5B", "Llama-3.2-1B", "Gemma-3-1B"]
PUBLISHED = {  # training and test problems (section 4.1); two of 12,000 have no answer
    "mbpp_plus": (264, 114),
    "math": (12_000 - 2, 500),
    "minif2f": (244, 244),
}
# In the comment of a value: its place in the paper, or the section of the notes about it.
SOURCE_IN_PAPER = re.compile(r"Tables? \d|Figure \d|[Ss]ection \d|Algorithm \d")
SECTION_OF_NOTES = re.compile(r"not (?:as )?said: ([A-Z][a-z ]+[a-z])")


@pytest.fixture(scope="module")
def params():
    return load(read(ROOT / "params.yaml", OVERLAY))


@pytest.fixture(scope="module")
def planned(params):
    return list_jobs(params)


def build_train_spec(params, benchmark, algorithm, model=SMALL):
    run = Run(benchmark=benchmark, model=model, algorithm=algorithm, seed=1)
    return specs.build_train_spec(params, run)


def test_every_run_of_the_tables_is_planned_once(planned):
    table_1 = product(
        PUBLISHED, [SMALL], ["sft", "grpo", "pg", "dapo", "rapid-H4", "rapid-H8"], [1, 2, 3]
    )
    table_2 = product(["mbpp_plus"], OTHER_MODELS, ["sft", "grpo", "pg", "dapo", "rapid-H4"], [1])
    table_3 = product(PUBLISHED, [SMALL], [f"rapid-H{h}" for h in (2, 4, 8, 16)], [1, 2, 3])
    expected = {*table_1, *table_2, *table_3}  # Tables 1 and 3 share H = 4 and 8
    runs = [job.spec.run for job in planned if job.stage == "train"]
    assert len(runs) == len(expected) == 3 * 8 * 3 + 3 * 5
    assert {(run.benchmark, run.model, run.algorithm, run.seed) for run in runs} == expected
    # Models are also evaluated before training: benchmarks x seeds of Table 1, models of Table 2.
    assert sum(job.stage == "evaluate" for job in planned) == len(expected) + 3 * 3 + 3


def test_models_are_pinned_to_commits_and_only_the_teacher_is_instruction_tuned(planned):
    models = [job.spec for job in planned if job.stage == "models"]
    assert {spec.model for spec in models} == {SMALL, *OTHER_MODELS, TEACHER}
    for spec in models:
        assert isinstance(spec, specs.FetchSpec)
        assert re.fullmatch(r"[0-9a-f]{40}", spec.params.revision), spec.model
        tuned = re.search(r"-(Instruct|it)$", spec.params.source)
        assert bool(tuned) == (spec.model == TEACHER)


@pytest.mark.parametrize(
    ("benchmark", "n_step", "pass_at"),
    [("mbpp_plus", 4, [1, 8]), ("math", 32, [1]), ("minif2f", 4, [1])],
)
def test_benchmarks_have_the_problems_batches_and_pass_at_k_of_the_paper(
    params, benchmark, n_step, pass_at
):
    problems = specs.build_prepare_spec(params, benchmark)
    assert (problems.source, problems.train, problems.test) == ("hub", *PUBLISHED[benchmark])
    base = Run(benchmark=benchmark, model=SMALL, algorithm="base", seed=1)
    evaluation = specs.build_evaluate_spec(params, base)
    assert (evaluation.pass_at, evaluation.evaluation.samples) == (pass_at, 8)
    assert params.benchmarks[benchmark].timeout == BENCHMARKS[benchmark].default_timeout
    for algorithm in ("grpo", "pg", "dapo", "rapid-H4"):  # Table 6
        spec = build_train_spec(params, benchmark, algorithm)
        assert (spec.n_step, spec.max_completion_length) == (n_step, 2048)
        training = spec.training
        assert (training.learning_rate, training.epochs, training.group_size) == (1e-6, 3, 4)
        assert training.precision == "bfloat16"
        assert (spec.compute.device, spec.compute.processes) == ("gpu", 4)


@pytest.mark.parametrize("h", [2, 4, 8, 16])
def test_rapid_is_algorithm_1_with_the_eta_of_table_6(params, h):
    spec = build_train_spec(params, "math", f"rapid-H{h}")
    assert h == spec.H
    algorithm_1 = {"clip": "advantage", "baseline": "group", "weighted": True}
    assert spec.objective.model_dump() == {"eta": 2.0} | algorithm_1


@pytest.mark.parametrize(("name", "beta"), [("grpo", 0.04), ("pg", None), ("dapo", None)])
def test_baselines_are_on_policy_and_only_grpo_has_the_kl_of_table_6(params, name, beta):
    spec = build_train_spec(params, "math", name)
    assert spec.H == 1
    assert getattr(spec.objective, "beta", None) == beta


def test_sft_and_the_teacher_have_the_settings_of_table_5(params):
    for model in (SMALL, *OTHER_MODELS):
        sft = build_train_spec(params, "mbpp_plus", "sft", model).objective
        assert (sft.learning_rate, sft.epochs, sft.batch) == (2e-5, 3, 12 * 4 * 2)
        assert sft.precision == "float32"
    for benchmark in PUBLISHED:
        distill = specs.build_distill_spec(params, benchmark)
        assert (distill.teacher, distill.max_completion_length) == (TEACHER, 2048)
        assert (distill.temperature, distill.top_p, distill.samples) == (0.7, 0.95, 5)
        assert distill.tensor_parallel == 4


def test_zero2_configuration_is_that_of_figure_5(params):
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


def walk_values(node: yaml.Node, path: str = ""):
    """Yield every value below a node with its key; a list is one value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from walk_values(value, f"{path}.{key.value}".lstrip("."))
    else:
        yield path, node


def read_notes() -> dict[str, str]:
    """Return the sections of docs/reproduction-notes.md by heading."""
    text = (ROOT / "docs/reproduction-notes.md").read_text(encoding="utf-8")
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    return {heading: body for heading, _, body in (part.partition("\n") for part in sections)}


def test_every_value_has_a_source_or_a_note_with_the_same_value():
    text, notes = OVERLAY.read_text(encoding="utf-8"), read_notes()
    nodes = {key: node for key, node in walk_values(yaml.compose(text)) if key != "name"}
    for key, node in nodes.items():
        _, _, comment = text.splitlines()[node.start_mark.line].partition(" # ")
        section = SECTION_OF_NOTES.search(comment)
        assert section or SOURCE_IN_PAPER.search(comment), key
        assert not section or re.search(rf"`{re.escape(key)}[`:]", notes[section[1]]), key
    values_in_notes = re.findall(r"`([a-z_]+(?:\.[\w.-]+)*): ([^`]+)`", "\n".join(notes.values()))
    assert len(values_in_notes) > 20
    for key, value in values_in_notes:
        assert yaml.safe_load(yaml.serialize(nodes[key])) == yaml.safe_load(value), key
