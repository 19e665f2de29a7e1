"""The parts of the benchmark that sample with vLLM, at small sizes."""

from dataclasses import replace

import pytest

from performance import measures, models, report
from performance.parts import list_experiments
from rapid.artifacts.files import BadInput
from tests.training.test_vllm import CACHE_SPACE, NOT_COMPILED


@pytest.fixture
def workload(tmp_path, monkeypatch) -> models.Workload:
    pytest.importorskip("vllm")
    variables = NOT_COMPILED | {"RAPID_CACHE": str(tmp_path), CACHE_SPACE: "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return models.load_subject("SmolLM2-135M", tmp_path, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["c", "e", "i"])
def test_small_model_is_measured_with_vllm(workload, part):
    experiment = next(list_experiments(part))
    setting = replace(experiment.setting, H=2, n_step=4, group=2, micro_batch=2, length=8, cores=1)
    trainers = ("trl", "rapid") if part == "c" else experiment.trainers
    experiment = replace(experiment, setting=setting, solve_rates=(0.5,), trainers=trainers)
    measure = getattr(measures, experiment.measure)
    [row] = measure(experiment, workload, repeats=1)
    assert row["bf16"] and row["vllm"]
    assert all(6 < row[f"tokens_{name}"] <= 8 for name in trainers)  # some end by chance
    assert all(row[f"seconds_{name}"][0] > 0 for name in trainers)
    assert row["sampling"] > 0
    assert row["sync"] > 0
    if part == "e":
        assert min(row["training_alone"], row["sampling_alone"]) > 0
    if part != "c":
        page = report.render_section(part, [{"experiment": experiment.name} | row])
        assert f"| {experiment.name if part == 'e' else setting.busy_processes} |" in page


@pytest.mark.parametrize("part", ["c", "e"])
def test_missing_vllm_is_an_error(monkeypatch, part):
    monkeypatch.setattr(measures, "find_spec", lambda name: None)
    experiment = next(list_experiments(part))
    with pytest.raises(BadInput, match="vLLM is not installed"):
        next(getattr(measures, experiment.measure)(experiment, None, 1))
