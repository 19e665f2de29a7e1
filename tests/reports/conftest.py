"""Small parameters, and a way to leave the files of a run, for the tests of reports."""

import copy
from pathlib import Path

import pytest

from rapid.params import Params, load
from rapid.records import Evaluation, RunSummary, Runtime, write_json
from rapid.specs import evaluations

BENCHMARK = {"train": 64, "test": 20, "n_step": 16, "max_completion_length": 64, "timeout": 5}
MODEL = {"layers": 2, "hidden": 64, "benchmarks": ["mbpp_plus"], "steps": 10, "error_rate": 0.1}
PARAMS = {
    "data_seed": 0,
    "threads": 1,
    "benchmarks": {
        "mbpp_plus": {**BENCHMARK, "pass_at": [1, 8]},
        "math": {**BENCHMARK, "pass_at": [1]},
    },
    "models": {"tiny_qwen": MODEL, "tiny-llama": MODEL, "teacher": MODEL},
    "teacher": "teacher",
    "pretraining": {
        "vocabulary": 512,
        "demonstrations": 10,
        "batch": 2,
        "learning_rate": 0.001,
    },
    "training": {
        "learning_rate": 0.001,
        "epochs": 1,
        "group_size": 4,
        "micro_batch": 8,
        "temperature": 1.0,
    },
    "grpo": {"beta": 0.0, "epsilon": 0.2},
    "dapo": {"epsilon_low": 0.2, "epsilon_high": 0.28, "rounds": 2, "overlong_buffer": 0.2},
    "rapid": {"eta": 1.0, "clip": "advantage"},
    "sft": {
        "learning_rate": 0.001,
        "epochs": 1,
        "batch": 4,
        "temperature": 1.0,
        "top_p": 1.0,
        "samples": 4,
    },
    "evaluation": {"samples": 8, "temperature": 1.0, "top_p": 0.95},
    "tables": {
        "main": {
            "model": "tiny_qwen",
            "algorithms": ["sft", "grpo", "naive-grpo", "pg", "dapo", "rapid-H4", "rapid-H2"],
            "seeds": [0, 1],
        },
        "families": {
            "benchmark": "mbpp_plus",
            "models": ["tiny_qwen", "tiny-llama"],
            "algorithms": ["sft", "pg", "rapid-H2"],
            "seeds": [0],
        },
        "staleness": {"H": [2, 4]},
    },
}


@pytest.fixture
def values() -> dict:
    """Parameters as a plain dict that a test may change."""
    return copy.deepcopy(PARAMS)


@pytest.fixture
def params(values) -> Params:
    return load(values)


class Runs:
    """Leaves the files of runs below a folder."""

    def __init__(self, root: Path):
        self.root = root

    def evaluation(self, run, **fields) -> Path:
        path = self.root / run.folder / "evaluation.json"
        write_json(path, Evaluation(**run.model_dump() | fields))
        return path

    def summary(self, run, seconds: float = 60.0, **fields) -> Path:
        path = self.root / run.folder / "summary.json"
        given = {
            "runtime": Runtime(total=seconds),
            "optimizer_steps": 10,
            "completions": 160,
            "peak_memory_mb": 500.0,
            "hardware": "a test processor, 2 cores",
            "commit": "0123456789abcdef0123456789abcdef01234567",
        }
        write_json(path, RunSummary(**run.model_dump() | given | fields))
        return path

    def all(self, params: Params) -> None:
        """A file for every run, each with figures of its own."""
        for number, run in enumerate(evaluations(params)):
            ks = params.benchmarks[run.benchmark].pass_at
            scores = {k: (number % 37) / 50 + k / 100 for k in ks}
            self.evaluation(run, pass_at=scores, problems=20, samples=8, top_p=0.95)
            if run.algorithm == "base":
                continue
            h = int(run.algorithm[7:]) if run.algorithm.startswith("rapid-H") else 0
            stale = 0.01 * h + 0.001 * run.seed if h else None
            self.summary(run, seconds=40.0 + 900 * (number % 11), staleness=stale)


@pytest.fixture
def runs(tmp_path) -> Runs:
    return Runs(tmp_path)
