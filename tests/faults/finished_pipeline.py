"""A small finished pipeline with invented files and valid manifests, and damage to its files."""

import json
import random
from contextlib import chdir
from pathlib import Path

import yaml

from rapid.artifacts.evaluations import CurvePoint
from rapid.artifacts.files import sha256_file, write_json, write_jsonl, write_text
from rapid.artifacts.manifests import MANIFEST, Manifest, write_manifest
from rapid.artifacts.runs import Runtime, TokenWeights
from rapid.config.jobs import build_plan
from rapid.config.params import load
from rapid.config.specs import BASE, Run
from rapid.freshness import Job
from tests.conftest import load_default_values
from tests.reports.conftest import RunFiles

SAMPLES, PROBLEMS, STEPS = 8, 4, 3
RUNS = RunFiles(Path())
MODEL_FILES = ("model.safetensors", "config.json", "tokenizer.json")


def make_pipeline_values() -> dict:
    """Return params.yaml with one benchmark, one model and five runs."""
    values = load_default_values()
    model = values["models"]["tiny-qwen2"]
    values["benchmarks"] = {"math": values["benchmarks"]["math"] | {"test": PROBLEMS}}
    values["models"] = {"tiny-qwen2": model | {"benchmarks": ["math"], "error_rate": {"math": 0.5}}}
    values["teacher"], values["evaluation"]["samples"] = "tiny-qwen2", SAMPLES
    values["experiment"]["benchmark"], values["rapid"]["H"] = "math", 2
    values["studies"], values["arena"] = None, None
    algorithms = ["sft", "pg", "rapid-H2,snapshots=1"]
    values["tables"] = {
        "main": {"model": "tiny-qwen2", "algorithms": algorithms, "seeds": [1, 2]},
        "families": {"benchmark": "math", "models": [], "algorithms": ["pg"], "seeds": [1]},
        "staleness": {"H": [2]},
    }
    return values


def write_pipeline(root: Path) -> None:
    """Write params.yaml, and the files of every job but the reports."""
    values = make_pipeline_values()
    write_text(root / "params.yaml", yaml.safe_dump(values, sort_keys=False))
    with chdir(root):
        for index, job in enumerate(build_plan(load(values)).jobs):
            if job.stage != "report":
                write_outputs(job, random.Random(index))


def write_outputs(job: Job, rng: random.Random) -> None:
    """Write the files that a job leaves, and its manifest."""
    folder, files = Path(job.folder), {}
    match job.stage:
        case "data":
            names = ("train.jsonl", "test.jsonl", "pretrain.jsonl")
            files = {name: json.dumps({"id": f"{rng.random()}"}) + "\n" for name in names}
        case "models":
            files = draw_model(rng)
        case "distill":
            files = {"samples.jsonl": f"{rng.random()}\n"}
        case "train":
            files = {f"model/{name}": text for name, text in draw_model(rng).items()}
            write_run(folder, job.spec.run, rng)
        case "evaluate":
            write_evaluation(folder, job.spec.run, rng)
    for name, text in files.items():
        write_text(folder / name, text)
    inputs = {}
    for upstream in job.inputs:
        inputs |= Manifest.read(upstream.folder).outputs
    write_manifest(folder, job.stage, job.spec, inputs, [folder])


def draw_model(rng: random.Random) -> dict[str, str]:
    """Return the files of a model that is never loaded."""
    return {name: f"{rng.random()}\n" for name in MODEL_FILES}


def write_run(folder: Path, run: Run, rng: random.Random) -> None:
    """Write a run's small files."""
    seconds_by_phase = {
        "sampling": rng.uniform(1, 2),
        "backpropagation": rng.uniform(1, 2),
        "other": 0.5,
    }
    runtime = Runtime(total=sum(seconds_by_phase.values()), **seconds_by_phase)
    rewards = [rng.random() for _ in range(STEPS)]
    summary_values = {
        "reward_first": rewards[0],
        "reward_last": rewards[-1],
        "optimizer_steps": STEPS,
    }
    summary_values |= {name: rng.random() / 10 for name in ("clip_fraction", "staleness")}
    RUNS.write_summary(run, runtime=runtime, **summary_values)
    RUNS.write_steps(run, rewards)
    if "rapid" in run.algorithm:
        weights = TokenWeights(
            tokens=["a", "b"], log_weights=[0, rng.random()], H=2, step=1, benchmark="math", id="p0"
        )
        write_json(folder / "token_weights.json", weights)


def write_evaluation(folder: Path, run: Run, rng: random.Random) -> None:
    """Write the files of a run's evaluation."""
    RUNS.write_scores(run, [rng.randrange(1, SAMPLES) for _ in range(PROBLEMS)], SAMPLES)
    if run.algorithm != BASE and "snapshots" in run.algorithm:
        point = CurvePoint(step=2, seconds=1.5, pass_at={1: rng.random()})
        write_jsonl(folder / "curve.jsonl", [point])


def forge_document(path: Path, change, in_all_manifests: bool = True) -> None:
    """Change a JSON document, and put its new digest into its job's manifest.

    Args:
        in_all_manifests: also change the manifests of the jobs that read the document.
    """
    digest, document = sha256_file(path), json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    for manifest in Path().rglob(MANIFEST) if in_all_manifests else [path.with_name(MANIFEST)]:
        manifest.write_text(manifest.read_text().replace(digest, sha256_file(path)))


def flip_bit(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one bit changed."""
    index = rng.randrange(len(content))
    return content[:index] + bytes([content[index] ^ 1 << rng.randrange(8)]) + content[index + 1 :]


def truncate(content: bytes, rng: random.Random) -> bytes:
    """Return the beginning of the content."""
    return content[: rng.randrange(len(content))]
