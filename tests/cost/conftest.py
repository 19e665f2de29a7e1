"""Parameters of params.yaml and of the paper, and runs on disk whose times follow a law."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rapid.artifacts.files import write_json, write_jsonl
from rapid.artifacts.manifests import hash_files
from rapid.artifacts.runs import RunSummary, Runtime, StepRecord
from rapid.config.params import Params, load, read
from rapid.config.specs import Run, TrainSpec, build_train_spec
from rapid.cost.expected import Expected
from rapid.cost.work import count_job_work, count_processes, estimate_trained_share
from tests.conftest import ROOT

EXPECTED = Expected(
    limit=2048, length=30, spread=0.0, prompt=40, signal=0.6, rewarded=0.8, kept=1.0
)
# Expectations that cannot be measured in runs, so the user sets them.
USER = {"spread": EXPECTED.spread, "prompt": EXPECTED.prompt}


@pytest.fixture
def params(values) -> Params:
    """The parameters in params.yaml."""
    return load(values)


@pytest.fixture
def paper_values() -> dict:
    """The parameters of the paper's experiments, on 4 GPUs."""
    return read(ROOT / "params.yaml", ROOT / "experiments/paper.yaml") | {"name": None}


@pytest.fixture
def paper(paper_values) -> Params:
    return load(paper_values)


def make_spec(
    params: Params, algorithm: str, benchmark: str = "math", seed: int = 1, model: str = ""
) -> TrainSpec:
    """Return the spec of a run, by default of the main model."""
    model = model or params.tables.main.model
    return build_train_spec(
        params, Run(benchmark=benchmark, model=model, algorithm=algorithm, seed=seed)
    )


def change_compute(section: Params | TrainSpec, **settings) -> Params | TrainSpec:
    """Return parameters or the spec of a run with changed settings in `compute`."""
    return section.model_copy(update={"compute": section.compute.model_copy(update=settings)})


@dataclass(frozen=True)
class TimeLaw:
    """Seconds that each unit of a run's work takes, independent of any roofline."""

    decoding: float = 2e-3  # of a decoding step, whatever its number of rows
    row: float = 5e-5  # of a row in a decoding step
    step: float = 4e-3  # of backpropagation in an optimizer step
    token: float = 1e-4  # of backpropagation
    loop: float = 2e-3  # of everything else in an optimizer step
    batch: float = 3e-3  # of everything else in a sampled batch
    verdict: float = 2e-3
    startup: float = 1.0


def write_run(
    root: Path,
    params: Params,
    spec: TrainSpec,
    noise: np.random.Generator | None = None,
    **changes,
) -> RunSummary:
    """Write the folder of a run whose times follow the law; `noise` changes them by up to 10 %."""
    law, run, work = TimeLaw(), spec.run, count_job_work(spec, params, lambda *pair: EXPECTED)
    factor = 1 if noise is None else noise.uniform(0.9, 1.1)
    observed = {}
    if work.is_supervised:
        phases = {"backpropagation": factor * 2 * law.token * work.tokens}
    else:
        observed["completion_length"] = EXPECTED.length
        phases = {
            "sampling": factor * (work.decoding_steps * law.decoding + work.rows * law.row),
            "grading": factor * work.completions * law.verdict,
            "backpropagation": factor * (work.steps * law.step + work.tokens * law.token),
            "other": factor * (work.steps * law.loop + work.batches * law.batch),
        }
    runtime = Runtime(total=sum(phases.values()), **phases, startup=law.startup)
    summary = RunSummary(
        **run.model_dump(),
        runtime=runtime,
        **observed,
        run=None if work.is_supervised else estimate_trained_share(spec, EXPECTED),
        optimizer_steps=work.steps,
        completions=round(work.completions * count_processes(spec)),
        hardware="a machine",
    ).model_copy(update=changes)
    folder = root / run.folder
    write_json(folder / "summary.json", summary)
    if observed:  # dynamic sampling replaces groups without signal
        observed["signal"] = 1.0 if run.algorithm == "dapo" else EXPECTED.signal
    rows = [StepRecord(step=n, seconds=n, loss=0, gradient_norm=1, **observed) for n in (1, 2, 3)]
    write_jsonl(folder / "steps.jsonl", rows)
    manifest = {"spec": spec.model_dump(mode="json"), "inputs": {}, "outputs": hash_files(folder)}
    write_json(folder / "manifest.json", manifest)
    return summary
