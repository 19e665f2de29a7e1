"""`make gpu` without a GPU: its parts at small sizes, and errors if something is missing."""

import os

import pytest
from packaging.utils import canonicalize_name

from performance import gpu, measures, models, report, results
from performance.parts import list_experiments
from tests.gpu import test_gpu as suite
from tests.test_install import make_wheel

TEST_FILE = """
import pytest
pytestmark = pytest.mark.gpu
def test_one(): pass
def test_two(): pytest.skip("no GPU")
def test_of_three(): assert 1 == 2, "a message"
"""


def test_both_trainers_are_measured_in_bfloat16_for_every_h(tmp_path, monkeypatch):
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path))
    assert [experiment.setting.H for experiment in list_experiments("k")] == [1, 2, 4, 8, 16] * 2
    experiment = next(list_experiments("k", quick=True))
    workload = models.load_subject(experiment.subject, tmp_path, quick=True)
    rows = [*measures.time_trainers(experiment, workload, repeats=1)]
    for row in rows:
        assert row["bf16"] and row["tokens_rapid"] == row["tokens_trl"] == 40
    page = report.render_section("k", rows)
    assert page.count("\n| SmolLM2-135M, cut to a small model") == 2


def test_each_gpu_test_is_a_row_with_its_outcome(tmp_path):
    (tmp_path / "test_some.py").write_text(TEST_FILE)
    [experiment] = list_experiments("j")
    rows = [*measures.run_tests(experiment, str(tmp_path), repeats=1)]
    assert [row["test"] for row in rows] == ["one", "two", "of three"]
    assert [row["failed"] for row in rows] == [False, False, True]
    assert [row["outcome"].split("\n")[0] for row in rows[:2]] == ["passed", "skipped: no GPU"]
    assert rows[2]["outcome"].startswith("failure: AssertionError: a message")
    page = report.render_section("j", rows)
    assert "| of three | failure: AssertionError: a message |" in page


def test_hardware_is_read_in_a_child_process(monkeypatch):
    monkeypatch.setattr(results, "describe_hardware", os.getpid)
    results.describe_hardware_in_child.cache_clear()
    assert results.describe_hardware_in_child() != os.getpid()
    results.describe_hardware_in_child.cache_clear()


def test_carried_packages_need_no_other_packages():
    assert gpu.find_missing_requirements() == []
    needed_by_torch_and_transformers = {
        "fsspec", "huggingface-hub", "numpy", "packaging", "pygments", "pyyaml", "tqdm",
    }  # fmt: skip
    allowed = {*gpu.WHEEL_PACKAGES, *gpu.PREINSTALLED, *needed_by_torch_and_transformers}
    assert {canonicalize_name(package.name) for package in gpu.list_requirements()} <= allowed


def test_wheels_are_unpacked_where_a_package_is_missing_or_older(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "WHEELS", tmp_path)
    monkeypatch.setattr(gpu, "SITE", tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name, version in (("made_up", "1.0"), ("trl", "0.1"), ("pytest", "999.0")):
        make_wheel(tmp_path, name, version)
    monkeypatch.setattr(gpu, "WHEEL_PACKAGES", ("made_up", "trl", "pytest"))
    assert gpu.find_missing_requirements() == ["made_up"]
    gpu.install_wheels()
    assert gpu.find_missing_requirements() == []
    unpacked = {path.name for path in (tmp_path / "site").glob("*.dist-info")}
    assert unpacked == {"made_up-1.0.dist-info", "pytest-999.0.dist-info"}


def test_error_of_an_unknown_wheel_names_it_and_keeps_the_wheels(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "WHEELS", tmp_path)
    assert gpu.main(["--wheels", "no-such-package"]) == 1
    assert "--wheels no-such-package: no such package" in capsys.readouterr().out
    assert tmp_path.is_dir()


def test_error_of_a_missing_gpu_or_package_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "install_wheels", lambda: None)
    monkeypatch.setattr(gpu, "_sees_gpu", lambda: False)
    assert gpu.main([]) == 1
    assert "GPU_BENCH=--tiny" in capsys.readouterr().out
    monkeypatch.setattr(gpu, "find_missing_requirements", lambda: ["trl"])
    assert gpu.main(["--tiny"]) == 1
    assert "lacks trl" in capsys.readouterr().out


@pytest.mark.slow
def test_worker_of_the_gpu_tests_runs_on_a_cpu(toy_model, tmp_path):
    [outcome] = suite.train_in_processes(toy_model, tmp_path, bf16=True, use_cpu=True)
    assert outcome["device"] == "cpu" and outcome["peak_gb"] == 0
    suite.check_outcome(outcome | {"device": "cuda:0"})
