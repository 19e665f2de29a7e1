"""What is missing is said, with what to do, and nothing else is."""

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
from rapid.config.jobs import jobs
from rapid.config.params import load, read
from rapid.cost.estimates import too_large
from rapid.grading.lean.install import Backend
from rapid.grading.policy import Grading
from rapid.resources.gpus import Gpu
from tests.conftest import ROOT

CHECK_GRADER = preflight._grader


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Graders are tested elsewhere; here they are what a test says."""
    monkeypatch.setattr(preflight, "_grader", lambda name, *_: preflight.Check(name, "works"))


def said(values, **options) -> dict[str, preflight.Check]:
    return {check.what: check for check in preflight.checks(load(values), **options)}


def missing(values, **options) -> set[str]:
    return {what for what, check in said(values, **options).items() if check.todo}


def has_memory(monkeypatch, gigabytes):
    found = SimpleNamespace(total=gigabytes * 10**9)
    monkeypatch.setattr(preflight.psutil, "virtual_memory", lambda: found)


def on_gpus(values, monkeypatch, count, memory_mb=48_000):
    values["compute"] |= {"device": "gpu", "processes": 4}
    values["sft"]["micro_batch"] = 4
    gpus = [Gpu(str(n), f"GPU-{n}", memory_mb) for n in range(count)]
    monkeypatch.setattr(preflight, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(preflight, "usable_cores", lambda: list(range(16)))
    has_memory(monkeypatch, 256)
    return values


def test_the_embedded_default_lacks_nothing_and_no_more_is_asked_for(values):
    values["models"]["unused"] = {"source": "/nowhere"}
    assert missing(values) == set()
    assert "models.unused" not in said(values)


def test_gpus_are_counted_and_measured(values, monkeypatch):
    assert missing(on_gpus(values, monkeypatch, 4)) == set()
    assert missing(on_gpus(values, monkeypatch, 3)) == {"GPUs"}
    assert "3, the largest job leases 4" in str(said(values)["GPUs"])
    small = missing(on_gpus(values, monkeypatch, 4, memory_mb=8_000))
    assert small == {f"GPU {n}" for n in range(4)}
    assert missing(on_gpus(values, monkeypatch, 0), machine=False) == set()


def test_cores_memory_and_disk_that_do_not_suffice(values, monkeypatch):
    has_memory(monkeypatch, 2)
    monkeypatch.setattr(preflight, "usable_cores", lambda: [0])
    free = SimpleNamespace(free=10**9)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: free)
    values["compute"]["threads"] = 2
    assert missing(values) == {"cores", "memory", "disk"}


def published(values, source) -> dict:
    """Have a table with a model from elsewhere."""
    values["models"]["published"] = {"source": str(source)}
    values["tables"]["families"]["models"] = ["published"]
    return values


def test_paths_that_are_not_there(values, tmp_path):
    values["benchmarks"]["math"]["source"] = str(tmp_path / "no.jsonl")
    found = missing(published(values, tmp_path / "none"))
    assert found == {"benchmarks.math.source", "models.published"}


def test_a_folder_counts_by_its_weights_and_disk_holds_a_copy_a_run(values, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert missing(published(values, tmp_path)) == {"models.published"}
    (tmp_path / "model.safetensors").touch()
    os.truncate(tmp_path / "model.safetensors", 10**11)  # a hole: takes no room
    assert str(said(values)["models.published"]).startswith("ok ")
    assert "disk" in missing(values)


@pytest.mark.parametrize("weights", ["model.gguf", "more/model.safetensors"])
def test_weights_that_fetching_does_not_take_are_none(values, tmp_path, weights):
    (tmp_path / weights).parent.mkdir(exist_ok=True)
    (tmp_path / weights).touch()
    assert missing(published(values, tmp_path)) == {"models.published"}


def test_what_is_made_needs_neither_the_hub_nor_more_room(values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    published(values, "nobody/nothing")
    for job in jobs(load(values)):
        if job.stage in ("models", "train"):
            Path(job.folder).mkdir(parents=True)
            spec = job.spec.model_dump(mode="json")
            write_json(Path(job.manifest), Manifest(spec=spec, inputs={}, outputs={}))
    weights = Path("models/published/model.safetensors")
    weights.touch()
    os.truncate(weights, 10**12)
    assert missing(values) == set()
    assert "1,000,000 MB" in said(values)["models.published"].found
    values["models"]["published"]["revision"] = "another"  # which is fetched
    assert missing(values) == {"models.published"}


def test_a_model_of_the_hub_that_cannot_be_had(values):
    """Offline, as all tests are."""
    check = said(published(values, "nobody/nothing"))["models.published"]
    assert "nobody/nothing@main cannot be had" in str(check)
    assert "gated" in check.todo


def test_the_command_says_each_and_ends_with_1(values, monkeypatch, tmp_path, capsys):
    path = tmp_path / "params.yaml"
    values["benchmarks"]["math"]["source"] = "/nowhere.jsonl"
    path.write_text(yaml.safe_dump(values))
    assert run(["preflight", "--configfile", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("MISSING")] == [
        "MISSING benchmarks.math.source: no /nowhere.jsonl. Give a file or folder that is there, or hub."
    ]
    assert lines[-1] == "1 missing"
    values["benchmarks"]["math"]["source"] = "embedded"
    assert run(["preflight", "--config", load(values).model_dump_json()]) == 0


@pytest.mark.parametrize("waived", [False, True])
def test_walls_that_are_not_there_are_missing_unless_waived(waived, monkeypatch):
    monkeypatch.setattr("rapid.grading.code.sandbox.LAYERS", ())
    line = str(CHECK_GRADER("mbpp_plus", Grading(unsafe_sandbox=waived)))
    assert line.startswith("ok" if waived else "MISSING")
    assert ("NOT WALLED OFF" if waived else "Install bubblewrap") in line
    assert "unsafe_sandbox" in line


@pytest.mark.parametrize(("version", "is_old"), [("4.28.0", True), ("4.32.2", False)])
def test_a_kernel_with_known_bugs_is_named_and_not_missing(version, is_old, monkeypatch):
    backend = Backend("wasm", version, Path())
    monkeypatch.setattr("rapid.benchmarks.minif2f.ensure_lean", lambda: backend)
    monkeypatch.setattr("rapid.benchmarks.minif2f.LeanGrader.walls", lambda _: "walls")
    check = CHECK_GRADER("minif2f", Grading())
    assert not check.todo
    says = f"Lean {version} is older than 4.32.2 and has two known kernel bugs"
    assert (says in str(check)) == is_old


def test_what_runs_report_to_has_to_be_installed(values, monkeypatch):
    assert "logging.report_to" not in said(values)
    values["logging"] = {"report_to": "wandb"}
    for there in (True, False):
        found = importlib.machinery.ModuleSpec("wandb", None) if there else None
        monkeypatch.setattr(preflight, "find_spec", {"wandb": found}.get)
        [check] = preflight.reporting(load(values))
        assert bool(check.todo) != there
    assert "pip install wandb" in check.todo


@pytest.mark.parametrize("needs_it", [{"processes": 2}, {"sampler": "vllm"}])
def test_what_deepspeed_and_vllm_build_with_is_looked_for(values, monkeypatch, needs_it):
    values["compute"] |= needs_it
    monkeypatch.setenv("CXX", "no-such-compiler")
    check = said(values)["C++"]
    assert "no compiler" in check.found and "apt install g++" in check.todo


def test_a_run_that_the_plan_knows_to_be_too_large_is_named_with_what_to_change(monkeypatch):
    """The paper's grid fits its four GPUs of 48 GB, and not such of 8 GB, nor passes of 12."""
    files = [ROOT / "params.yaml", ROOT / "experiments/paper.yaml"]

    def missing_memory(memory_mb, micro_batch="auto"):
        values = read(*files)
        values["sft"]["micro_batch"] = micro_batch
        gpus = [Gpu(str(n), f"GPU-{n}", memory_mb) for n in range(4)]
        monkeypatch.setattr(preflight, "visible_gpus", lambda: gpus)
        found = preflight._machine(load(values), too_large)
        return {one.what: one for one in found if one.what.startswith("memory of")}

    assert missing_memory(48_000) == {}
    large = missing_memory(48_000, micro_batch=12)
    assert "memory of Qwen2.5-0.5B, sft" in large
    assert large["memory of Qwen2.5-0.5B, sft"].todo == "Make sft.micro_batch smaller, or auto."
    assert "are more than 92% of 48 GB" in large["memory of Qwen2.5-0.5B, sft"].found
    small = {one.todo for one in missing_memory(8_000).values()}
    assert "A pass is one completion already: set sft.checkpointing to true." in small
