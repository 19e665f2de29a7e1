"""The training stage: train a model with one algorithm, and write the run's folder.

RL samples the completions of H optimizer steps together (an inference batch). An optimizer step
processes its completions in micro-batches, parts that fit into memory.
"""

import math
import os
import shutil
import time
from itertools import islice
from pathlib import Path

from rapid.algorithms.variant_names import parse_variant_name
from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.files import BadInput, read_jsonl, write_json, write_jsonl
from rapid.artifacts.manifests import (
    clear_outputs,
    describe_hardware,
    get_commit,
    verify_inputs,
    write_manifest,
)
from rapid.artifacts.metrics import summarize_steps
from rapid.artifacts.runs import (
    CHECKPOINTS,
    SNAPSHOTS,
    TOKEN_WEIGHTS,
    RunSummary,
    Runtime,
    TokenWeights,
    explain_untrained,
)
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.problem_source import find_source_of_file
from rapid.benchmarks.prompts import read_context_length, render_prompt, tokenize_prompt
from rapid.config.params import CHECKPOINT_SECONDS, CHECKPOINT_VARIABLE
from rapid.config.specs import TrainSpec, uses_vllm_server
from rapid.grading.verdicts import REASONS
from rapid.processes.fork_server import get_attempt
from rapid.processes.lifetimes import is_main_process

PRECISION = "precision"  # file in the folder of checkpoints, with the precision that `auto` chose
# Threads that grade, for each grader. They are more than one because threads that have the same
# completion wait for one verdict; meanwhile others keep the graders busy.
THREADS_PER_GRADER = 4
SHORT_COMPLETION = 128  # tokens; up to this limit "eager" attention is used on CPUs in bfloat16


def train(spec: TrainSpec, model: Path, data: Path, folder: Path) -> RunSummary:
    """Train, and write model/, steps.jsonl, summary.json and manifest.json into the run's folder.

    Snapshots (models during training, if the spec asks for them) and the token weights of one
    completion (`select_token_weights`) are written too.

    Nothing is trained if the benchmark's grader is not available on this machine, SFT has no
    demonstrations, or the run that should have written `model` trained nothing; then summary.json
    has the reason. A run that was killed resumes from its last checkpoint
    (`rapid.training.resume`).

    Args:
        model: folder of the model to start from; it may be in another run's folder.
        data: training problems (train.jsonl); for SFT demonstrations (samples.jsonl).
        folder: the run's folder.

    Returns:
        The contents of summary.json.

    Raises:
        SystemExit: the process received SIGTERM or SIGINT, and has saved a checkpoint.
    """
    started = time.perf_counter()
    benchmark = BENCHMARKS[spec.run.benchmark]
    # A run that trained nothing has no model/, only a summary.json that says why.
    inputs = verify_inputs(model if model.is_dir() else model.with_name("summary.json"), data)
    if is_main_process():
        clear_outputs(folder, "model", TOKEN_WEIGHTS, "steps.jsonl", "summary.json")
    identity = {**spec.run.model_dump(), "commit": get_commit(), "hardware": describe_hardware()}
    is_sft = spec.training is None
    reason = benchmark.explain_unavailable() or explain_untrained(model)
    if not reason and is_sft and not data.stat().st_size:
        reason = "the teacher solved none of the training problems"
    if reason:
        if is_main_process():
            shutil.rmtree(folder / SNAPSHOTS, ignore_errors=True)  # of an earlier run
        summary = RunSummary(**identity, status="unavailable", note=reason)
        return _write_results(spec, folder, summary, steps=[], inputs=inputs, more_outputs=[])

    if is_sft or spec.compute.sampler != "vllm":
        from rapid.training.trl import prevent_vllm_import

        prevent_vllm_import()
    from rapid.stages.reporting import build_report_callbacks
    from rapid.training.recorder import Snapshots, StepRecorder
    from rapid.training.resume import ResumableRun, prepare_checkpoint_dir

    recorder = StepRecorder()
    build_trainer = _build_sft_trainer if is_sft else _build_rl_trainer
    checkpoints = prepare_checkpoint_dir(folder / CHECKPOINTS, spec, inputs, is_main_process())
    trainer, count_completions = build_trainer(spec, benchmark, model, data, checkpoints)
    source = find_source_of_file(benchmark.name, data)
    trainer.args.run_name = f"{folder}, {source.label}"  # shown by W&B and trackio
    for callback in (
        *build_report_callbacks(folder, spec, source, recorder, is_main_process()),
        recorder,
    ):
        trainer.add_callback(callback)
    # The seconds of each phase, such as sampling. SFT has one phase and no clock.
    recorder.clock = clock = getattr(trainer, "clock", None)
    checkpoint_seconds = float(os.environ.get(CHECKPOINT_VARIABLE, CHECKPOINT_SECONDS))
    run = ResumableRun(trainer, recorder, checkpoint_seconds, is_main_process())
    snapshots_dir = folder / SNAPSHOTS
    if not run.checkpoint:
        shutil.rmtree(snapshots_dir, ignore_errors=True)  # of an earlier run
    if spec.snapshots:
        trainer.add_callback(Snapshots(spec.snapshots, snapshots_dir, trainer.save_model, recorder))
    run.train()
    total = recorder.seconds

    trainer.save_model(str(folder / "model"))
    more_outputs = [snapshots_dir] if spec.snapshots else []
    if is_main_process() and (weights := select_token_weights(spec, trainer, benchmark, data)):
        write_json(folder / TOKEN_WEIGHTS, weights)
        more_outputs.append(folder / TOKEN_WEIGHTS)
    phases = dict(clock.seconds) if clock else {"backpropagation": total}
    # "other" is all time that is in no other phase, even time that the clock did not count.
    phases["other"] = total - sum(seconds for name, seconds in phases.items() if name != "other")
    usage = recorder.usage
    if clock:
        # Time for which the main thread waited for its core counts as a disturbance by other
        # processes, but in the phase of grading it may be the job's own graders that used the core.
        usage = usage._replace(waited=usage.waited - clock.waited["grading"])
    summary = RunSummary(
        **identity,
        runtime=Runtime(total=total, startup=recorder.began - started, **phases),
        **usage._asdict(),
        disturbed=usage.is_disturbed(total, phases.get("grading", 0.0)),
        attempt=get_attempt(),
        interrupted=run.attempt.interrupted,
        lost=run.attempt.lost,
        peak_memory_mb=recorder.peak_memory_mb,
        # The precision that was used, also if `auto` chose it.
        precision="bfloat16" if trainer.args.bf16 else "float32",
        # The size of a micro-batch in completions if `auto` chose it, else 0.
        pass_completions=trainer.completions_per_micro_batch
        if spec.pass_settings.micro_batch == "auto"
        else 0,
        halvings=trainer.halvings,
        **count_completions(),
        optimizer_steps=len(recorder.steps),
        **summarize_steps(recorder.steps),
    )
    isolation = getattr(trainer, "isolation", "")  # of the grader's sandbox; SFT has no grader
    return _write_results(spec, folder, summary, recorder.steps, inputs, more_outputs, isolation)


def _write_results(
    spec: TrainSpec,
    folder: Path,
    summary: RunSummary,
    steps,
    inputs: dict[str, str],
    more_outputs: list[Path],
    isolation: str = "",
) -> RunSummary:
    """In the main process, write a run's records and manifest, and delete its checkpoints."""
    if not is_main_process():
        return summary
    write_jsonl(folder / "steps.jsonl", steps)
    write_json(folder / "summary.json", summary)
    outputs = [folder / name for name in ("model", "steps.jsonl", "summary.json")]
    notes = {"isolation": isolation, "unavailable": summary.note}
    write_manifest(folder, "train", spec, inputs, [*outputs, *more_outputs], **notes)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return summary


def select_token_weights(spec: TrainSpec, trainer, benchmark, data: Path) -> TokenWeights | None:
    """Return the token weights of the completion with the highest reward in the last micro-batch.

    Returns None if the micro-batch has no completion or no importance weights.
    """
    # The last micro-batch, its optimizer step, and the log-probs of its tokens under the policy.
    step, micro_batch, logp = getattr(trainer, "last_pass", None) or (0, {}, None)
    if "behavior_logp" not in micro_batch or logp.shape != micro_batch["behavior_logp"].shape:
        return None  # on-policy, so all weights are 1; or `logp` has only a part of a shared group
    tokenizer = trainer.processing_class
    # Completions that were cut off at the length limit may be masked as a whole.
    has_tokens = micro_batch["completion_mask"].any(1)
    if not has_tokens.any():
        return None  # a dummy micro-batch, which a process runs while others have real ones
    row = int(micro_batch["rewards"].masked_fill(~has_tokens, -math.inf).argmax())
    prompt = tokenizer.decode(micro_batch["prompt_ids"][row], skip_special_tokens=True)
    problems = read_jsonl(data, benchmark.record)
    problem_id = next(
        (p.id for p in problems if render_prompt(benchmark.name, p, spec.chat).strip() in prompt),
        "unknown",
    )
    is_token = micro_batch["completion_mask"][row].bool()
    log_weights = (logp - micro_batch["behavior_logp"])[row][is_token]
    return TokenWeights(
        tokens=[tokenizer.decode(token) for token in micro_batch["completion_ids"][row][is_token]],
        log_weights=log_weights.tolist(),
        H=spec.H,
        step=step,
        benchmark=spec.run.benchmark,
        id=problem_id,
    )


def build_trainer_arguments(spec: TrainSpec, checkpoints: Path) -> dict:
    """Build the arguments of transformers' trainers that RL and SFT share."""
    import torch

    from rapid.stages.reporting import PROJECT
    from rapid.training.precision import choose_precision

    precision = spec.pass_settings.precision  # of forward and backward passes
    if precision == "auto":
        precision = choose_precision(checkpoints / PRECISION)
    bf16 = precision == "bfloat16"
    # On a CPU in bfloat16, PyTorch's fused attention takes 1.5 times as long as plain ("eager")
    # attention, mostly in the backward pass. Plain attention stores the attention weights of all
    # pairs of tokens, which are few if completions are short.
    use_eager = (
        bf16 and spec.max_completion_length <= SHORT_COMPLETION and not torch.cuda.is_available()
    )
    attention = {"attn_implementation": "eager"} if use_eager else {}
    return {
        "output_dir": str(checkpoints),
        "model_init_kwargs": {"use_safetensors": True} | attention,
        "seed": spec.run.seed,
        "logging_steps": 1,
        "save_strategy": "no",  # `ResumableRun` decides when to save
        "save_total_limit": 2,
        "report_to": [],  # `rapid.stages.reporting` adds callbacks
        "project": PROJECT,
        "lr_scheduler_type": spec.pass_settings.schedule,
        "gradient_checkpointing": spec.pass_settings.checkpointing,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": bf16,
        "dataloader_pin_memory": torch.cuda.is_available(),
    }


def _build_prompt(spec: TrainSpec, problem: Problem) -> str | list[dict]:
    """Return the prompt: a text to continue, or a user's message to a chat model."""
    text = render_prompt(spec.run.benchmark, problem, spec.chat)
    return [{"role": "user", "content": text}] if spec.chat else text


def _build_sampler_settings(
    spec: TrainSpec, model: Path, tokenizer, problems: list[Problem]
) -> dict:
    """Return RapidConfig's settings for the sampler.

    The sampler is transformers, vLLM in each training process, or a vLLM server.

    Raises:
        BadInput: the longest prompt and completion do not fit into the context of vLLM's model.
    """
    if spec.compute.sampler != "vllm":
        return {}
    if uses_vllm_server(spec):
        from rapid.vllm_server import build_trainer_settings

        return build_trainer_settings()
    texts = (render_prompt(spec.run.benchmark, problem, spec.chat) for problem in problems)
    longest = max(len(tokenize_prompt(tokenizer, text, spec.chat)) for text in texts)
    length, context = longest + spec.max_completion_length, read_context_length(model, tokenizer)
    if 0 < context < length:
        raise BadInput(
            f"benchmarks.{spec.run.benchmark}.max_completion_length: {spec.run.model} takes "
            f"{context} tokens, and the longest prompt has {longest}. With vLLM both have to fit: "
            f"set it to at most {context - longest}"
        )
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": spec.compute.device == "gpu",
        "vllm_max_model_length": length,
    }


def _build_sft_trainer(spec: TrainSpec, benchmark, model: Path, data: Path, checkpoints: Path):
    """Return a trainer for SFT, and a function that returns no counts for the summary: `dict`."""
    from rapid.training.sft import build_sft_trainer

    demonstrations = list(read_jsonl(data, Demonstration))
    arguments = build_trainer_arguments(spec, checkpoints)
    trainer = build_sft_trainer(model, demonstrations, spec.objective, arguments, spec.chat)
    return trainer, dict


def _build_rl_trainer(spec: TrainSpec, benchmark, model: Path, data: Path, checkpoints: Path):
    """Return a RapidTrainer, and a function that returns counts of completions for the summary."""
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer

    from rapid.training.config import RapidConfig
    from rapid.training.trainer import RapidTrainer

    training, objective = spec.training, spec.objective
    selected_problems = islice(read_jsonl(data, benchmark.record), spec.problems)
    problems = {problem.id: problem for problem in selected_problems}
    rows = [{"prompt": _build_prompt(spec, problem), "id": id} for id, problem in problems.items()]
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=False)
    graders = spec.compute.threads  # one for each core
    # The graders are not closed; they end with the process.
    grader = benchmark.build_grader(spec.timeout, graders, spec.grading).__enter__()
    benchmark.warm_up(grader, list(problems.values()))

    def accuracy(completions: list, id: list[str], **_) -> list[float | None]:
        """Return the reward of each completion, graded for the problem with its id."""
        texts = [chat[0]["content"] for chat in completions] if spec.chat else completions
        return [
            grader.grade(problems[problem_id], text).reward
            for problem_id, text in zip(id, texts, strict=True)
        ]

    variant = parse_variant_name(spec.run.algorithm)  # such as rapid-H8,max_grad_norm=2
    algorithm = variant.algorithm
    config = RapidConfig(
        **build_trainer_arguments(spec, checkpoints),
        **variant.changes.subset(["skip_zero_groups", "max_grad_norm"]),
        parameters=dict(objective or {}),
        objective=algorithm.name,
        # As in DAPO's paper, a group has a signal if its accuracies differ, whatever its length
        # penalties are.
        dynamic_sampling_by="accuracy",
        sampling_batch_size=spec.sampling_batch,
        H=spec.H,
        n_step=spec.n_step,
        reuse=training.reuse,
        num_generations=training.group_size,
        micro_batch_size=training.micro_batch,
        max_completion_length=spec.max_completion_length,
        trust_sampler=training.trust_sampler,
        temperature=training.temperature,
        # Grade while sampling, if there is another core for it.
        grading_workers=THREADS_PER_GRADER * graders if graders > 1 else 0,
        learning_rate=training.learning_rate,
        num_train_epochs=training.epochs,
        **_build_sampler_settings(spec, model, tokenizer, list(problems.values())),
    )
    trainer = RapidTrainer(
        str(model),
        algorithm.build_reward_functions(objective, spec.max_completion_length, accuracy),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.isolation, trainer.verdicts = grader.describe_isolation(), grader.reasons

    def count_completions() -> dict:
        """Count the completions that all processes sampled, and their verdicts by reason."""
        accelerator = trainer.accelerator
        counts = [
            trainer.completions_sampled,
            *(grader.reasons[reason] for reason in sorted(REASONS)),
        ]
        sums = accelerator.reduce(torch.tensor(counts, device=accelerator.device)).tolist()
        reason_counts = zip(sorted(REASONS), sums[1:], strict=True)
        return {
            "completions": sums[0],
            "reasons": {reason: count for reason, count in reason_counts if count},
        }

    return trainer, count_completions
