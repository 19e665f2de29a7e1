"""The training stage: one run of one algorithm, from a model's folder to a run's folder."""

import time
from pathlib import Path
from statistics import fmean

from rapid.launch import is_main
from rapid.provenance import commit, hardware, peak_memory_mb, write_manifest
from rapid.records import (
    Demonstration,
    RunSummary,
    Runtime,
    StepRecord,
    read_jsonl,
    write_json,
    write_jsonl,
)
from rapid.specs import TrainSpec, served


def train(spec: TrainSpec, model: Path, data: Path, folder: Path) -> RunSummary:
    """Train, and write model/, steps.jsonl, summary.json and manifest.json into the run's folder.

    Args:
        model: folder of the model to start from.
        data: training problems (train.jsonl); for sft the teacher's samples (samples.jsonl).

    Where the benchmark's grader cannot be had on this machine, or sft has nothing to imitate, nothing
    is trained and the summary says why.
    """
    entered = time.perf_counter()
    from rapid.tasks import get_task

    task = get_task(spec.run.benchmark)
    identity = {**spec.run.model_dump(), "commit": commit(), "hardware": hardware()}
    if missing := task.unavailable() or _nothing_to_imitate(spec, data):
        summary = RunSummary(**identity, status="unavailable", note=missing)
        return _write(spec, folder, summary, [], [])

    if spec.training is None or spec.compute.sampler != "vllm":
        without_vllm()
    from rapid.recorder import StepRecorder

    recorder = StepRecorder()
    trainer, completions = (_sft if spec.run.algorithm == "sft" else _rl)(
        spec, task, model, data, folder, recorder
    )
    if clock := getattr(trainer, "clock", None):
        recorder.clock = clock.seconds
    trainer.train()
    total = recorder.ended - recorder.began

    trainer.save_model(str(folder / "model"))
    phases = dict(clock.seconds) if clock else {"backpropagation": total}
    phases["other"] = total - sum(seconds for name, seconds in phases.items() if name != "other")
    summary = RunSummary(
        **identity,
        runtime=Runtime(total=total, startup=recorder.began - entered, **phases),
        completions=completions(),
        peak_memory_mb=peak_memory_mb(),
        **_means(recorder.steps),
    )
    return _write(spec, folder, summary, recorder.steps, [model, data])


def _nothing_to_imitate(spec: TrainSpec, data: Path) -> str:
    empty = spec.run.algorithm == "sft" and not data.stat().st_size
    return "the teacher solved none of the training problems" if empty else ""


def _write(spec, folder: Path, summary: RunSummary, steps, inputs: list[Path]) -> RunSummary:
    if not is_main():
        return summary
    write_jsonl(folder / "steps.jsonl", steps)
    write_json(folder / "summary.json", summary)
    outputs = [folder / name for name in ("model", "steps.jsonl", "summary.json")]
    write_manifest(folder, "train", spec, inputs, outputs)
    return summary


def _means(steps: list[StepRecord]) -> dict:
    def mean(name: str, of: list[StepRecord]) -> float | None:
        values = [v for step in of if (v := getattr(step, name)) is not None]
        return fmean(values) if values else None

    tenth = max(1, len(steps) // 10)
    return {
        "optimizer_steps": len(steps),
        "staleness": mean("staleness", steps),
        "clip_fraction": mean("clip_fraction", steps),
        "run": mean("run", steps),
        "completion_length": mean("completion_length", steps),
        "reward_first": mean("reward", steps[:tenth]),
        "reward_last": mean("reward", steps[-tenth:]),
    }


def without_vllm() -> None:
    """Keep TRL from importing vLLM, which takes seconds, where transformers does the sampling."""
    import trl.import_utils as trl_imports

    trl_imports.is_vllm_available = lambda *_, **__: False


def _arguments(spec: TrainSpec, folder: Path) -> dict:
    """Training arguments that all algorithms share."""
    import torch

    return {
        "output_dir": str(folder),  # nothing is written there: the stage saves what it declares
        "seed": spec.run.seed,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": False,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
    }


def _sampler(spec: TrainSpec) -> dict:
    """What samples: transformers, vLLM in each process, or (naive GRPO on GPUs) vLLM's server."""
    if spec.compute.sampler != "vllm":
        return {}
    if served(spec):
        from rapid.server import trainer_settings

        return trainer_settings()
    return {"use_vllm": True, "vllm_mode": "colocate"}


def _sft(spec: TrainSpec, task, model: Path, data: Path, folder: Path, recorder):
    from rapid.sft import sft_trainer

    demonstrations = list(read_jsonl(data, Demonstration))
    arguments, processes = _arguments(spec, folder), spec.compute.processes
    trainer = sft_trainer(model, demonstrations, spec.objective, arguments, processes)
    trainer.add_callback(recorder)
    return trainer, lambda: 0


def _rl(spec: TrainSpec, task, model: Path, data: Path, folder: Path, recorder):
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.rewards import get_soft_overlong_punishment

    from rapid.tasks.prompts import render
    from rapid.training import RapidConfig, RapidTrainer

    training, objective = spec.training, spec.objective
    problems = {problem.id: problem for problem in read_jsonl(data, task.row_type)}
    rows = [{"prompt": render(task.name, problem), "id": id} for id, problem in problems.items()]
    grader = task.grader(spec.timeout).__enter__()  # lives as long as the process
    # Its processes start with the first verdict: that is start-up, not training.
    grader.grade(next(iter(problems.values())), "")

    def accuracy(completions: list[str], id: list[str], **_) -> list[float]:
        return [
            grader.grade(problems[i], completion).reward
            for i, completion in zip(id, completions, strict=True)
        ]

    rewards, extra = [accuracy], {}
    match spec.run.algorithm:
        case "pg":
            extra = {"objective": "pg"}
        case "grpo" | "naive-grpo":
            extra = {"objective": "grpo", "beta": objective.beta, "epsilon": objective.epsilon}
            extra["sampling_batch_size"] = spec.sampling_batch
        case "dapo":
            extra = {
                "objective": "dapo",
                "epsilon": objective.epsilon_low,
                "epsilon_high": objective.epsilon_high,
                "dynamic_sampling_rounds": objective.rounds,
            }
            length = spec.max_completion_length
            buffer = max(1, round(objective.overlong_buffer * length))
            rewards.append(get_soft_overlong_punishment(length, buffer))
        case _:
            extra = {"objective": "rapid", "eta": objective.eta, "clip": objective.clip}
    config = RapidConfig(
        **_arguments(spec, folder),
        **extra,
        **_sampler(spec),
        H=spec.H,
        n_step=spec.n_step,
        num_generations=training.group_size,
        micro_batch_size=training.micro_batch,
        max_completion_length=spec.max_completion_length,
        temperature=training.temperature,
        grading_workers=1 if spec.compute.threads > 1 else 0,
        learning_rate=training.learning_rate,
        num_train_epochs=training.epochs,
    )
    trainer = RapidTrainer(
        str(model),
        rewards,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        callbacks=[recorder],
    )
    # Each process samples as many.
    return trainer, lambda: trainer.completions_sampled * trainer.accelerator.num_processes
