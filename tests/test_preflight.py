"""`rapid preflight` lists the missing requirements of a machine, each with advice."""

import importlib.machinery
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from huggingface_hub.errors import GatedRepoError

from rapid import preflight
from rapid.artifacts.files import write_json
from rapid.artifacts.manifests import Manifest
from rapid.cli import run
from rapid.config.jobs import list_jobs
from rapid.config.params import load, read
from rapid.grading.lean.install import Backend
from rapid.grading.permissions import GradingPermissions
from rapid.resources.gpus import Gpu
from tests.conftest import ROOT

CHECK_GRADER = preflight._check_grader
WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True)
def skip_graders(monkeypatch):
    monkeypatch.setattr(preflight, "_check_grader", lambda name, *_: preflight.Check(name, "works"))


def run_checks(values, **options) -> dict[str, preflight.Check]:
    return {check.subject: check for check in preflight.run_checks(load(values), **options)}


def find_missing(values, **options) -> set[str]:
    return {subject for subject, check in run_checks(values, **options).items() if check.advice}


def set_memory(monkeypatch, gigabytes):
    memory = SimpleNamespace(total=gigabytes * 10**9)
    monkeypatch.setattr(preflight.psutil, "virtual_memory", lambda: memory)


def set_gpus(monkeypatch, count, memory_mb=48_000, problem=""):
    """Simulate GPUs, and what `explain_unusable_gpus` returns."""
    gpus = [Gpu(str(number), f"GPU-{number}", memory_mb) for number in range(count)]
    monkeypatch.setattr(preflight, "list_visible_gpus", lambda: gpus)
    monkeypatch.setattr(preflight, "explain_unusable_gpus", lambda count: problem)


def use_model(values, source) -> dict:
    """Return parameters whose tables need a model from this source."""
    values["models"]["published"] = {"source": str(source)}
    values["tables"]["families"]["models"] = ["published"]
    return values


def write_weights(path: Path, size: int = 0) -> None:
    """Write a sparse file of this size, which takes no disk space."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)


def test_the_default_has_no_missing_item_and_unused_models_are_ignored(values):
    values["models"]["unused"] = {"source": "/nowhere"}
    assert find_missing(values) == set()
    assert "models.unused" not in run_checks(values)


def test_too_few_gpus_are_missing_and_small_ones_are_enough_for_tiny_models(values, monkeypatch):
    values["compute"] |= {"device": "gpu", "processes": 4}
    values["sft"]["micro_batch"] = 4
    monkeypatch.setattr(preflight, "list_usable_cores", lambda: list(range(16)))
    set_memory(monkeypatch, 256)
    for count, memory_mb, expected in (
        (4, 48_000, set()),
        (4, 8_000, set()),
        (3, 48_000, {"GPUs"}),
    ):
        set_gpus(monkeypatch, count, memory_mb)
        assert find_missing(values) == expected
    assert "3 visible, the largest job needs 4" in str(run_checks(values)["GPUs"])
    set_gpus(monkeypatch, 0)
    assert find_missing(values, machine=False) == set()


@pytest.mark.parametrize(("gigabytes", "missing"), [(128, set()), (64, {"memory"})])
def test_jobs_on_gpus_need_main_memory_for_weights_and_not_slurm_s_limit(
    gigabytes, missing, monkeypatch
):
    """GRPO with 1.5 billion parameters: in each of 4 processes 8 GB, and 6 GB for each of 2 models."""
    values = read(ROOT / "params.yaml", ROOT / "experiments/paper.yaml")
    set_memory(monkeypatch, gigabytes)
    set_gpus(monkeypatch, 4)
    monkeypatch.setattr(preflight, "list_usable_cores", lambda: list(range(16)))
    checks = preflight._check_machine(load(values))
    assert {check.subject for check in checks if check.advice} == missing


def test_gpus_that_torch_cannot_use_are_missing(values, monkeypatch):
    values["compute"]["device"] = "gpu"
    set_memory(monkeypatch, 256)
    set_gpus(monkeypatch, 4, problem="torch can use 0 of 4 GPU(s): no CUDA 13.0. Do this")
    assert find_missing(values) == {"CUDA"}
    check = run_checks(values)["CUDA"]
    assert str(check) == "MISSING CUDA: torch can use 0 of 4 GPU(s): no CUDA 13.0. Do this."
    set_gpus(monkeypatch, 4)
    assert str(run_checks(values)["CUDA"]) == "ok      CUDA: torch can use 4 GPU(s)"


def test_too_few_cores_and_too_little_memory_and_disk_space_are_missing(values, monkeypatch):
    set_memory(monkeypatch, 2)
    monkeypatch.setattr(preflight, "list_usable_cores", lambda: [0])
    free = SimpleNamespace(free=10**9)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: free)
    values["compute"]["threads"] = 2
    assert find_missing(values) == {"cores", "memory", "disk"}


def test_disk_space_includes_float32_models_and_the_checkpoints_of_one_run(values):
    use_model(values, "nobody/nothing")
    values["training"]["precision"] = values["sft"]["precision"] = "bfloat16"

    def count_needed_mb(size):
        finding = preflight._check_disk(load(values), {"published": size}).finding
        return int(re.search(r"([\d,]+) MB needed", finding)[1].replace(",", ""))

    runs = [
        job.spec.run.algorithm
        for job in list_jobs(load(values))
        if job.stage == "train" and job.spec.run.model == "published"
    ]
    checkpoints = 3 * 16 * 1_000 // 2  # 16 bytes for each parameter, of which the weights have 2
    assert count_needed_mb(1_000) - count_needed_mb(0) == 1_000 * (1 + len(runs)) + checkpoints
    in_bfloat16 = count_needed_mb(1_000)
    values["sft"]["precision"] = "float32"
    assert count_needed_mb(1_000) - in_bfloat16 == 1_000 * runs.count("sft") > 0


def test_a_model_s_folder_must_have_safetensors_weights(values, tmp_path):
    values["benchmarks"]["math"]["source"] = str(tmp_path / "no.jsonl")
    absent = {"benchmarks.math.source", "models.published"}
    assert find_missing(use_model(values, tmp_path / "none")) == absent
    values["benchmarks"]["math"]["source"] = "embedded"
    use_model(values, tmp_path)
    for name in ("config.json", "model.gguf", f"more/{WEIGHTS}"):
        write_weights(tmp_path / name)
        assert find_missing(values) == {"models.published"}
    write_weights(tmp_path / WEIGHTS, 10**11)
    assert str(run_checks(values)["models.published"]).startswith("ok ")
    assert "disk" in find_missing(values)  # each run needs a copy


def test_finished_jobs_need_neither_the_hub_nor_disk_space(values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    use_model(values, "nobody/nothing")
    for job in list_jobs(load(values)):
        if job.stage in ("models", "train"):
            Path(job.folder).mkdir(parents=True)
            spec = job.spec.model_dump(mode="json")
            write_json(Path(job.manifest), Manifest(spec=spec, inputs={}, outputs={}))
    write_weights(Path("models/published", WEIGHTS), 10**12)
    assert find_missing(values) == set()
    assert "1,000,000 MB" in run_checks(values)["models.published"].finding
    values["models"]["published"]["revision"] = "another"  # another revision has to be fetched
    check = run_checks(values)["models.published"]
    assert "nobody/nothing@another is not available" in str(check)  # offline, as all tests are
    assert "gated" in check.advice


@pytest.mark.parametrize("has_access", [True, False])
def test_a_gated_model_without_access_is_missing(has_access, values, monkeypatch):
    """The hub lists the files of a gated repository for anyone, but refuses downloads."""
    file = SimpleNamespace(rfilename=WEIGHTS, size=10**9)
    info = SimpleNamespace(gated="manual", siblings=[file])

    def check_access(_, name, repo_type):
        if not has_access:
            response = SimpleNamespace(headers={}, request=None)
            raise GatedRepoError("403 Client Error.", response=response)

    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", lambda *_, **__: info)
    monkeypatch.setattr("huggingface_hub.HfApi.auth_check", check_access)
    check = run_checks(use_model(values, "nobody/nothing"))["models.published"]
    if has_access:
        assert str(check).endswith("on the hub, 1,000 MB")
    else:
        assert "not available: it is gated" in check.finding
        assert "accept its terms on the hub, and run `hf auth login`" in check.advice


def test_the_command_prints_missing_items_and_fails(values, tmp_path, capsys):
    path = tmp_path / "params.yaml"
    values["benchmarks"]["math"]["source"] = "/nowhere.jsonl"
    path.write_text(yaml.safe_dump(values))
    assert run(["preflight", "--configfile", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("MISSING")] == [
        "MISSING benchmarks.math.source: /nowhere.jsonl does not exist. Set it to an existing file or folder, or to hub."
    ]
    assert lines[-1] == "1 missing"
    values["benchmarks"]["math"]["source"] = "embedded"
    assert run(["preflight", "--config", load(values).model_dump_json()]) == 0


@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_sandbox_that_does_not_work_is_missing_unless_allowed(is_allowed, monkeypatch):
    monkeypatch.setattr("rapid.grading.code.sandbox.LAYERS", ())
    line = str(CHECK_GRADER("mbpp_plus", GradingPermissions(unsafe_sandbox=is_allowed)))
    assert line.startswith("ok" if is_allowed else "MISSING")
    assert ("NOT ISOLATED" if is_allowed else "Install bubblewrap") in line
    assert "unsafe_sandbox" in line


def test_a_grader_names_its_own_permission_only():
    permissions = GradingPermissions(unsafe_sandbox=True, unsafe_lean=True)
    line = str(CHECK_GRADER("mbpp_plus", permissions))
    assert "; grading.unsafe_sandbox is on" in line
    assert "unsafe_lean" not in line


@pytest.mark.parametrize(("version", "is_old"), [("4.28.0", True), ("4.34.1", False)])
def test_a_kernel_with_known_bugs_is_mentioned_but_not_missing(version, is_old, monkeypatch):
    backend = Backend("wasm", version, Path())
    monkeypatch.setattr("rapid.benchmarks.minif2f.ensure_lean", lambda: backend)
    monkeypatch.setattr("rapid.benchmarks.minif2f.LeanGrader.describe_isolation", lambda _: "none")
    check = CHECK_GRADER("minif2f", GradingPermissions())
    assert not check.advice
    note = f"Lean {version} is older than 4.34.1 and has known kernel bugs"
    assert (note in str(check)) == is_old


def test_the_package_of_a_reporter_has_to_be_installed(values, monkeypatch):
    assert "logging.report_to" not in run_checks(values)
    values["logging"] = {"report_to": "wandb"}
    for module in (importlib.machinery.ModuleSpec("wandb", None), None):
        monkeypatch.setattr(preflight, "find_spec", {"wandb": module}.get)
        [check] = preflight.check_reporter(load(values))
        assert bool(check.advice) == (module is None)
    assert "pip install wandb" in check.advice


@pytest.mark.parametrize("setting", [{"processes": 2}, {"sampler": "vllm"}])
def test_deepspeed_and_vllm_need_a_compiler(values, monkeypatch, setting):
    values["compute"] |= setting
    monkeypatch.setenv("CXX", "no-such-compiler")
    check = run_checks(values)["C++"]
    assert "no compiler" in check.finding and "apt install g++" in check.advice
    assert check in preflight.check_late_requirements(
        load(values)
    )  # which a workflow on a CPU runs first


def test_jobs_too_large_for_the_gpus_are_reported_with_advice(monkeypatch):
    """The paper's grid fits four GPUs of 48 GB, but neither GPUs of 8 GB nor micro-batches of 12."""

    def check_memory(memory_mb, micro_batch="auto"):
        values = read(ROOT / "params.yaml", ROOT / "experiments/paper.yaml")
        values["sft"]["micro_batch"] = micro_batch
        set_gpus(monkeypatch, 4, memory_mb)
        machine_checks = preflight._check_machine(load(values))
        return {
            check.subject: check
            for check in machine_checks
            if check.subject.startswith("GPU memory of")
        }

    assert check_memory(48_000) == {}
    large = check_memory(48_000, micro_batch=12)["GPU memory of Qwen2.5-0.5B, sft"]
    assert large.advice == "Lower sft.micro_batch, or set it to auto."
    assert "needed, more than 92% of 48 GB" in large.finding
    checks = check_memory(8_000)
    advice = {check.advice for check in checks.values()}
    assert "A micro-batch is one completion already, so set sft.checkpointing to true." in advice
    teacher = checks["GPU memory of Qwen2.5-32B-Instruct, distill"]
    assert teacher.advice == (  # it is divided among all four already
        "Use larger GPUs, or more GPUs and a larger tensor_parallel of the teacher."
    )
    evaluation = check_memory(4_000)["GPU memory of Qwen2.5-1.5B, evaluate"]
    assert evaluation.advice == "Use larger GPUs."


def test_vllm_needs_memory_for_one_sequence_and_not_for_all_that_it_may_sample(monkeypatch):
    """A teacher of 65 GB fits four GPUs of 24 GB: 16 GB of weights, and under 1 GB for the rest."""
    values = read(ROOT / "params.yaml", ROOT / "experiments/paper.yaml")
    values["sft"]["checkpointing"] = True
    set_gpus(monkeypatch, 4, 24_000)
    checks = [check.subject for check in preflight._check_machine(load(values)) if check.advice]
    assert not [subject for subject in checks if subject.startswith("GPU memory of Qwen2.5-32B")]


def test_a_cached_model_is_available_if_it_has_weights(values, tmp_path, monkeypatch):
    """As for `rapid fetch`, which otherwise fails later."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository, commit = tmp_path / "models--nobody--nothing", "a" * 40
    write_weights(repository / "refs/main")
    (repository / "refs/main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    assert "models.published" in find_missing(use_model(values, "nobody/nothing"))
    write_weights(repository / "snapshots" / commit / WEIGHTS, 10**9)
    assert str(run_checks(values)["models.published"]).endswith("in the hub's cache, 1,000 MB")
