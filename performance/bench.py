"""`python -m performance.bench`: measure parts of the benchmark, and write their results page.

The figures are written to summary.jsonl, and the page to README.md beside it. Nothing else should
run on the machine. Like the pipeline's jobs, the command leases a core (rapid/resources/leases.py)
and runs one thread on it; while other jobs lease all cores, it waits. With a part that uses vLLM or
grades beside sampling, it leases two cores. With part (j) or (k), as in `make gpu`, it leases a GPU
instead if there is one.
"""

import os
import sys
from functools import cache, partial
from pathlib import Path

from tqdm import tqdm

from performance.parts import (
    DEFAULT_PARTS,
    MODEL_NAMES,
    PARTS,
    QUICK_MODEL_NAMES,
    Experiment,
    list_experiments,
)
from rapid.arguments import Parser

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",  # for child processes; this process has imported tqdm already
    # `torch.cuda.is_available` then asks the driver's library. Otherwise it would initialise CUDA,
    # and processes that are forked later could not use CUDA.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
QUICK_FOLDER = ROOT / "benchmarks" / "quick"  # for results of --quick, which Git ignores


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    options = _make_parser().parse_args(arguments)
    if unknown := [part for part in options.part if part not in PARTS]:
        sys.exit(f"bench: --part {unknown[0]}: no such part; known: {', '.join(PARTS)}")
    experiments = [
        (part, experiment)
        for part in options.part
        for experiment in list_experiments(part, options.quick)
    ]
    max_cores = max(experiment.setting.cores for _, experiment in experiments)
    cores = _prepare("j" in options.part or "k" in options.part, max_cores)
    from performance import models, report, results
    from rapid.artifacts.files import BadInput

    model_names = options.models or (QUICK_MODEL_NAMES if options.quick else MODEL_NAMES)
    # An experiment's subject is what it measures: a model, a grader, or a folder of tests.
    skipped = {*MODEL_NAMES} - {*model_names}
    load_subject = cache(partial(models.load_subject, tiny=options.model, quick=options.quick))
    folder = options.out or (QUICK_FOLDER if options.quick else results.FOLDER)
    # The options that affect the figures. They are recorded with the figures.
    recorded_options = {
        "repeats": options.repeats or (2 if options.quick else 5),
        "quick": options.quick,
    }
    rows = {
        part: results.read_rows(folder, part, recorded_options) if options.resume else []
        for part in options.part
    }
    measured = {(part, row["experiment"]) for part in rows for row in rows[part]}
    pending = [
        (part, experiment)
        for part, experiment in experiments
        if experiment.subject not in skipped and (part, experiment.name) not in measured
    ]
    # Why a subject or an experiment of a part could not be measured, by its name.
    reasons: dict[str, dict[str, str]] = {part: {} for part in options.part}
    any_failed = False
    bar_format = "bench: {desc} {percentage:3.0f}%, {remaining} left"
    update_seconds = 0.1 if sys.stderr.isatty() else 20
    with tqdm(pending, bar_format=bar_format, mininterval=update_seconds) as bar:
        for part, experiment in bar:
            bar.set_description_str(f"({part}) {experiment.name}")
            try:
                subject = load_subject(experiment.subject, benchmark=experiment.benchmark)
                new_rows = _measure(experiment, subject, recorded_options["repeats"], cores)
                rows[part] += new_rows
                any_failed |= any(row.get("failed") for row in new_rows)
            except BadInput as error:
                reasons[part][experiment.subject] = str(error)
                _print_status(f"({part}) {experiment.subject}: {error}")
            except RuntimeError as error:  # other experiments may still succeed
                reasons[part][experiment.name] = str(error).splitlines()[-1]
                _print_status(f"({part}) {experiment.name}: {error}")
                any_failed = True
            missing = [": ".join(item) for item in reasons[part].items()]
            results.write_part(folder, part, rows[part], missing, recorded_options)
    report.main([str(folder)])
    return int(any_failed)


def _measure(experiment: Experiment, subject, repeats: int, cores: list[int]) -> list[dict]:
    """Return the rows of an experiment, measured on the leased cores, or on a GPU without them."""
    from performance import measures
    from rapid.resources.leases import bind_to_cores

    if cores:
        setting = experiment.setting
        bind_to_cores(cores[: setting.cores], setting.threads or setting.cores)
    measure = getattr(measures, experiment.measure)
    rows = measure(experiment, subject, min(repeats, experiment.repeats))
    return [{"experiment": experiment.name} | row for row in rows]


def _prepare(use_gpu: bool, core_count: int) -> list[int]:
    """Set the environment, lease cores or a GPU, then import what every training loop needs.

    Returns:
        The leased cores; an empty list if a GPU was leased.
    """
    os.environ |= ENVIRONMENT
    from rapid.resources.gpus import list_visible_gpus
    from rapid.resources.leases import lease_cores, lease_gpus

    cores: list[int] = []
    if use_gpu and list_visible_gpus():
        _print_status(f"on GPU {lease_gpus(1)[0]}; importing")
    else:
        cores = lease_cores(core_count)
        _print_status(f"on core {', '.join(map(str, cores))}; importing")
    from rapid.training.trl import prevent_vllm_import

    prevent_vllm_import()
    import transformers

    transformers.logging.disable_progress_bar()
    return cores


def _print_status(text: str) -> None:
    """Print a message to stderr."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _make_parser() -> Parser:
    parser = Parser(prog="python -m performance.bench", description=__doc__)
    add = parser.add_argument
    parts = ", ".join(f"{part}: {PARTS[part]['title']}" for part in PARTS)
    add("--part", default=DEFAULT_PARTS, help=f"parts, as in `ab` (default: %(default)s); {parts}")
    add(
        "--repeats",
        type=int,
        help="repetitions of each trainer (default: 5, with --quick 2; fewer for larger models)",
    )
    add(
        "--quick",
        action="store_true",
        help="measure little, to try the command; writes to benchmarks/quick/",
    )
    add(
        "--models",
        nargs="+",
        choices=MODEL_NAMES,
        help=f"models to measure (default: all; with --quick {', '.join(QUICK_MODEL_NAMES)})",
    )
    add("--resume", action="store_true", help="skip what the folder contains already")
    tiny = ROOT / "models" / "tiny-qwen2"
    add("--model", type=Path, default=tiny, help="folder of the tiny model")
    add("--out", type=Path, help="folder to write summary.jsonl and README.md to")
    return parser


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # skip Python's finalisation, in which libraries print warnings
