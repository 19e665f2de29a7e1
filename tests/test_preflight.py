"""`rapid preflight` lists the missing requirements of a machine, each with advice."""

import importlib.machinery
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

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


def set_gpus(monkeypatch, count, memory_mb=48_000):
    gpus = [Gpu(str(number), f"GPU-{number}", memory_mb) for number in range(count)]
    monkeypatch.setattr(preflight, "list_visible_gpus", lambda: gpus)


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


def test_too_few_cores_and_too_little_memory_and_disk_space_are_missing(values, monkeypatch):
    set_memory(monkeypatch, 2)
    monkeypatch.setattr(preflight, "list_usable_cores", lambda: [0])
    free = SimpleNamespace(free=10**9)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: free)
    values["compute"]["threads"] = 2
    assert find_missing(values) == {"cores", "memory", "disk"}


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
    assert teacher.advice == "Raise the teacher's tensor_parallel, or use larger GPUs."
    assert checks["GPU memory of Qwen2.5-1.5B, evaluate"].advice == "Use larger GPUs."
