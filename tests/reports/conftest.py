"""Small parameters and a writer of run files, shared by the tests of reports."""

import json
from collections.abc import Callable
from math import comb
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.evaluations import CurvePoint, Evaluation, ProblemScore
from rapid.artifacts.files import write_json, write_jsonl
from rapid.artifacts.manifests import hash_files
from rapid.artifacts.runs import RunSummary, Runtime, StepRecord
from rapid.benchmarks.problem_source import ProblemSource
from rapid.config import specs
from rapid.config.params import Params, load
from rapid.config.specs import Run
from reports.__main__ import main
from reports.plots import style
from tests.conftest import load_default_values

TABLES = """
main:
  model: tiny_qwen
  algorithms: [sft, grpo, naive-grpo, pg, dapo, rapid-H4, rapid-H2]
  seeds: [0, 1]
families:
  benchmark: mbpp_plus
  models: [tiny_qwen, tiny-llama]
  algorithms: [sft, pg, rapid-H2]
  seeds: [0]
staleness: {H: [2, 4]}
"""
PROVENANCE = {
    "hardware": "a test processor, 2 cores",
    "commit": "0123456789abcdef0123456789abcdef01234567",
}
SVG = b'<svg width="72pt" height="36pt" viewBox="0 0 72 36"/>'
MADE_PROBLEMS = ProblemSource("math", "made", "data_seed 0")


def small_values() -> dict:
    """Return params.yaml with smaller tables and with names that TeX must escape."""
    values = load_default_values()
    benchmark = values["benchmarks"]["mbpp_plus"]
    benchmark["train"] = 16 * benchmark["n_step"]  # divisible by every H that tests use
    model = values["models"][values["teacher"]] | {"benchmarks": ["mbpp_plus", "math"]}
    values["benchmarks"] = {
        "mbpp_plus": benchmark | {"pass_at": [1, 8]},
        "math": benchmark | {"pass_at": [1]},
    }
    values["models"] = dict.fromkeys(["tiny_qwen", "tiny-llama", "teacher"], model)
    values["teacher"] = "teacher"
    values["evaluation"]["samples"] = 8
    return values | {"tables": yaml.safe_load(TABLES)}


def make_run(algorithm: str, seed: int = 0, benchmark: str = "math") -> Run:
    """Return a run of the main model."""
    return Run(benchmark=benchmark, model="tiny_qwen", algorithm=algorithm, seed=seed)


def add_arena(values: dict, rates: dict[str, float], **field) -> dict:
    """Return parameters with an arena on MATH, in which each algorithm has two short runs."""
    values["benchmarks"]["math"] = values["benchmarks"]["math"] | {"train": 64}
    defaults = {"seeds": 2, "problems": 16, "snapshots": 1, "reach": 0.5, "rates": rates}
    return values | {"arena": {"fields": {"math": defaults | field}}}


def write_report(values: dict, root: Path, *options: str) -> Path:
    """Write tables and report.html, with placeholders for figures; return their folder."""
    out = root / "out"
    files = ["--output", str(out / "tables.tex"), "--html", str(out / "report.html")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "render", lambda figure, kinds, page: dict.fromkeys(kinds, SVG))
        assert main(["--config", json.dumps(values), "--root", str(root), *files, *options]) == 0
    return out


@pytest.fixture
def values() -> dict:
    return small_values()


@pytest.fixture
def params(values) -> Params:
    return load(values)


class RunFiles:
    """Writes files of runs below a folder, with the manifests of their jobs."""

    def __init__(self, root: Path):
        self.root = root

    def write_evaluation(self, run, **fields) -> Path:
        path = self.root / run.evaluation / "evaluation.json"
        write_json(path, Evaluation(**run.model_dump() | fields))
        return self.add_to_manifest(path)

    def write_summary(self, run, seconds: float = 60.0, **fields) -> Path:
        path = self.root / run.folder / "summary.json"
        defaults = {
            "runtime": Runtime(total=seconds, other=seconds),
            "optimizer_steps": 10,
            "completions": 160,
            "peak_memory_mb": 500.0,
            **PROVENANCE,
        }
        write_json(path, RunSummary(**run.model_dump() | defaults | fields))
        return self.add_to_manifest(path)

    def write_scores(self, run, correct: list[int], samples: int = 8, ks=(1,), **fields) -> Path:
        """Write an evaluation in which `correct[i]` of `samples` completions solve problem i."""
        scores = [
            ProblemScore(id=f"p{i}", samples=samples, correct=c) for i, c in enumerate(correct)
        ]
        pass_at = {
            k: sum(1 - comb(samples - c, k) / comb(samples, k) for c in correct) / len(correct)
            for k in ks
        }
        passed = sum(correct)
        reasons = {"passed": passed, "wrong_answer": samples * len(correct) - passed}
        defaults = {"problems": len(correct), "samples": samples, "reasons": reasons}
        return self.write_evaluation(
            run, **{"pass_at": pass_at, "scores": scores} | defaults | fields
        )

    def write_accuracy(self, run, accuracy: float, ks=(1,), **fields) -> Path:
        """Write an evaluation of one problem that this share of its completions solves."""
        return self.write_scores(run, [round(accuracy * 100_000)], 100_000, ks, **fields)

    def write_curve(self, run, *points: CurvePoint) -> Path:
        path = self.root / run.evaluation / "curve.jsonl"
        write_jsonl(path, points)
        return self.add_to_manifest(path)

    def write_steps(self, run, rewards: list[float]) -> Path:
        rows = [
            StepRecord(step=n, seconds=1.5 * n, loss=0.0, gradient_norm=1.0, reward=reward)
            for n, reward in enumerate(rewards, start=1)
        ]
        path = self.root / run.folder / "steps.jsonl"
        write_jsonl(path, rows)
        return self.add_to_manifest(path)

    def write_manifest(self, params: Params, run) -> None:
        """Write the manifest of a training job: its spec, versions and hardware."""
        spec = specs.build_train_spec(params, run).model_dump(mode="json")
        versions = {"python": "3.11.7", "torch": "2.13.0"}
        path = self.root / run.folder / "steps.jsonl"
        self.add_to_manifest(path, stage="train", spec=spec, versions=versions, **PROVENANCE)

    def add_to_manifest(self, path: Path, **fields) -> Path:
        """Add a file to the manifest of its folder, with its present hash; return the file."""
        manifest = path.with_name("manifest.json")
        document = {"spec": {}, "inputs": {}, "outputs": {}}
        path.parent.mkdir(parents=True, exist_ok=True)
        if manifest.exists():
            document = json.loads(manifest.read_text())
        document["outputs"].pop(path.as_posix(), None)
        document["outputs"] |= hash_files(path)
        manifest.write_text(json.dumps(document | fields))
        return path

    def delete(self, path: Path) -> None:
        """Delete a file and its entry in the manifest."""
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            self.add_to_manifest(path)

    def edit(self, path: Path, change: Callable[[dict], object]) -> None:
        """Change a JSON file and its hash in the manifest."""
        document = json.loads(path.read_text())
        change(document)
        write_json(path, document)
        self.add_to_manifest(path)

    def write_all(self, params: Params) -> None:
        """Write the files of every run; values differ between runs."""
        for number, run in enumerate(specs.add_base_runs(params, specs.list_table_runs(params))):
            ks = params.benchmarks[run.benchmark].pass_at
            correct = [(number * 7 + problem * 5 + problem % 3) % 9 for problem in range(20)]
            self.write_scores(run, correct, ks=ks, top_p=0.95)
            if run.algorithm == "base":
                continue
            optional_fields = {"completion_length": 30.0}
            if run.algorithm.startswith("rapid-H"):
                h = int(run.algorithm[7:])
                optional_fields |= {"staleness": 0.01 * h + 0.001 * run.seed, "clip_fraction": 0.05}
            seconds = 40.0 + 900 * (number % 11)
            runtime = Runtime(total=seconds, sampling=seconds / 2, backpropagation=seconds / 2)
            self.write_summary(run, runtime=runtime, **optional_fields)
            self.write_steps(run, [(number + n) % 5 / 4 for n in range(10)])
            self.write_manifest(params, run)


@pytest.fixture
def runs(tmp_path) -> RunFiles:
    return RunFiles(tmp_path)
