"""`make gpu` on a machine without one: its parts at small sizes, and what it says is missing."""

import os
import zipfile

import pytest
from packaging.utils import canonicalize_name

from performance import gpu, models, parts, report, results
from tests.gpu import test_gpu as suite

QUICK = parts.Plan(repeats=1, quick=True)
TESTS = """
import pytest
pytestmark = pytest.mark.gpu
def test_one(): pass
def test_two(): pytest.skip("no GPU")
def test_of_three(): assert 1 == 2, "so it is"
"""


def test_both_trainers_are_measured_in_bfloat16_for_every_h(tmp_path, monkeypatch):
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path))
    workload = models.untrained(models.UNTRAINED[0], models.read_problems(None, 8), quick=True)
    assert len([*parts.on_gpu(parts.Plan(1, quick=False), workload)]) == 5
    first, _ = parts.on_gpu(QUICK, workload)
    rows = [*first.run()]
    for row in rows:
        assert row["bf16"] and row["tokens_rapid"] == row["tokens_stock"] == 8
        for side in ("rapid", "stock"):
            assert row[f"token_pace_{side}"][0] == pytest.approx(
                8 * row[f"pace_{side}"][0], rel=1e-4
            )
            assert row[f"share_{side}"][0] > 0 and row[f"peak_{side}"][0] > 0
        ratio = row["share_rapid"][0] / row["share_stock"][0]
        assert ratio == pytest.approx(row["faster"][0], rel=1e-4)  # of the same work
    page = report.section("k", rows)
    assert page.count("\n| SmolLM2-135M, cut to a small model") == 2


def test_each_test_of_the_suite_is_a_row_with_its_outcome(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    rows = [*parts.suite(QUICK, str(tmp_path))]
    assert [row["test"] for row in rows] == ["one", "two", "of three"]
    assert [row["failed"] for row in rows] == [False, False, True]
    assert [row["said"].split("\n")[0] for row in rows[:2]] == ["passed", "skipped: no GPU"]
    assert rows[2]["said"].startswith("failure: AssertionError: so it is")
    assert "| of three | failure: AssertionError: so it is |" in report.section("j", rows)


def test_hardware_is_asked_for_in_a_child_so_that_loops_can_be_forked(monkeypatch):
    monkeypatch.setattr(results, "hardware", os.getpid)
    results.hardware_in_child.cache_clear()
    assert results.hardware_in_child() != os.getpid()
    results.hardware_in_child.cache_clear()


def test_what_is_carried_needs_only_what_is_there():
    assert gpu.lacking() == []
    of_torch_and_transformers = {
        "fsspec", "huggingface-hub", "numpy", "packaging", "pygments", "pyyaml", "tqdm",
    }  # fmt: skip
    known = {*gpu.CARRIED, *gpu.THERE, *of_torch_and_transformers}
    assert {canonicalize_name(one.name) for one in gpu.needed()} <= known


def test_wheels_are_unpacked_where_a_package_is_missing_or_older(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "WHEELS", tmp_path)
    monkeypatch.setattr(gpu, "SITE", tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name, version in (("made_up", "1.0"), ("trl", "0.1"), ("pytest", "999.0")):
        save_wheel(tmp_path, name, version)
    monkeypatch.setattr(gpu, "CARRIED", ("made_up", "trl", "pytest"))
    assert gpu.lacking() == ["made_up"]
    gpu.install()
    assert gpu.lacking() == []
    found = {path.name for path in (tmp_path / "site").glob("*.dist-info")}
    assert found == {"made_up-1.0.dist-info", "pytest-999.0.dist-info"}


def save_wheel(folder, name: str, version: str) -> None:
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(f"{name}-{version}.dist-info/{file}", text)


def test_without_a_gpu_or_a_package_it_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "install", lambda: None)
    monkeypatch.setattr(gpu, "_sees_gpu", lambda: False)
    assert gpu.main([]) == 1
    assert "GPU_BENCH=--tiny" in capsys.readouterr().out
    monkeypatch.setattr(gpu, "lacking", lambda: ["trl"])
    assert gpu.main(["--tiny"]) == 1
    assert "lacks trl" in capsys.readouterr().out


@pytest.mark.slow
def test_what_the_suite_runs_runs_on_a_cpu_too(toy_model, tmp_path):
    [found] = suite.run(toy_model, tmp_path, bf16=True, use_cpu=True)
    assert found["device"] == "cpu" and found["peak_gb"] == 0
    suite.check(found | {"device": "cuda:0"})
