"""`python -m performance.bench`: measure, write the figures, and write the page that shows them.

Nothing else should run on the machine. The command leases a core like the pipeline's jobs, so it
waits if running jobs hold all cores, and uses one thread on that core. With vLLM, and to grade
beside sampling, it leases two cores. Parts (j) and (k), which `make gpu` runs, lease a GPU instead
if there is one.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from tqdm import tqdm

from performance.parts import DEFAULT_PARTS, PARTS, Experiment, list_experiments
from rapid.arguments import Parser
from rapid.text import suggest_name

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",  # for child processes; this process has read it when it imported tqdm
    # `torch.cuda.is_available` then asks the driver's library and does not initialise CUDA, which
    # would make it unusable in processes that are forked later.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
QUICK = ROOT / "benchmarks" / "quick"  # folder for results of --quick, which are not kept


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    options = _make_parser().parse_args(arguments)
    if unknown := [part for part in options.part if part not in PARTS]:
        sys.exit(f"bench: --part {unknown[0]}: no such part; known: {', '.join(PARTS)}")
    chosen_parts = [(part, [*list_experiments(part, options.quick)]) for part in options.part]
    most_cores = max(e.setting.cores for _, experiments in chosen_parts for e in experiments)
    cores = _prepare(not {"j", "k"}.isdisjoint(options.part), most_cores)
    from performance import models, report, results

    chosen = options.models or (models.QUICK if options.quick else models.NAMES)
    if unknown := [name for name in chosen if name not in models.NAMES]:
        names, meant = ", ".join(models.NAMES), suggest_name(unknown[0], models.NAMES)
        sys.exit(f"bench: --models {unknown[0]}: no such model; known: {names}{meant}")
    skipped = {*models.NAMES} - {*chosen}
    load_subject = cache(partial(models.load_subject, tiny=options.model, quick=options.quick))
    folder = options.out or (QUICK if options.quick else results.FOLDER)
    settings = {"repeats": options.repeats or (2 if options.quick else 5), "quick": options.quick}
    rows, todo, failed = {}, [], False
    for part, experiments in chosen_parts:
        rows[part] = results.read_rows(folder, part, settings) if options.resume else []
        measured = {row["experiment"] for row in rows[part]}
        todo += [
            (part, experiment)
            for experiment in experiments
            if experiment.subject not in skipped and experiment.name not in measured
        ]
    for part, new_rows, missing, failure in _measure(
        todo, load_subject, settings["repeats"], cores
    ):
        rows[part] += new_rows
        failed |= failure or any(row.get("failed") for row in new_rows)
        results.write_part(folder, part, rows[part], missing, settings)
    report.main([str(folder)])
    return int(failed)


def _measure(
    todo: list[tuple[str, Experiment]], load_subject: Callable, repeats: int, cores: list[int]
) -> Iterator:
    """Run experiments.

    Args:
        todo: parts with their experiments.
        load_subject: returns the model or benchmark of a name (`performance.models.load_subject`).
        repeats: samples of each side of a comparison.
        cores: the leased cores; empty with a GPU.

    Yields:
        After each experiment its part, its rows, what the part lacks so far, and whether the
        experiment failed.
    """
    from performance import measures
    from rapid.artifacts.files import BadInput
    from rapid.resources.leases import bind_to_cores

    missing: dict[str, dict[str, str]] = {part: {} for part, _ in todo}
    form = "bench: {desc} {percentage:3.0f}%, {remaining} left"
    with tqdm(todo, bar_format=form, mininterval=0.1 if sys.stderr.isatty() else 20) as bar:
        for part, experiment in bar:
            bar.set_description_str(f"({part}) {experiment.name}")
            measure, count = getattr(measures, experiment.measure), experiment.setting.cores
            if cores:
                bind_to_cores(cores[:count], experiment.setting.threads or count)
            rows, failed = [], False
            try:
                subject = load_subject(experiment.subject, benchmark=experiment.benchmark)
                new_rows = measure(experiment, subject, min(repeats, experiment.repeats))
                rows = [{"experiment": experiment.name} | row for row in new_rows]
            except BadInput as error:
                missing[part][experiment.subject] = str(error)
                _report(f"({part}) {experiment.subject}: {error}")
            except RuntimeError as error:  # other experiments may still succeed
                missing[part][experiment.name] = str(error).splitlines()[-1]
                _report(f"({part}) {experiment.name}: {error}")
                failed = True
            yield part, rows, [": ".join(line) for line in missing[part].items()], failed


def _prepare(gpu: bool, count: int) -> list[int]:
    """Set the environment, lease cores or a GPU, then import what every training loop needs.

    Returns:
        The `count` cores that were leased; none if a GPU was.
    """
    os.environ |= ENVIRONMENT
    from rapid.resources.gpus import list_visible_gpus
    from rapid.resources.leases import lease_cores, lease_gpus

    cores: list[int] = []
    if gpu and list_visible_gpus():
        _report(f"on GPU {lease_gpus(1)[0]}; importing")
    else:
        cores = lease_cores(count)
        _report(f"on core {', '.join(map(str, cores))}; importing")
    from rapid.training.trl import without_vllm

    without_vllm()
    import transformers

    transformers.logging.disable_progress_bar()
    return cores


def _report(text: str) -> None:
    """Print a message about the command's progress."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _make_parser() -> Parser:
    parser = Parser(prog="python -m performance.bench", description=__doc__)
    add = parser.add_argument
    parts = ", ".join(f"{part}: {PARTS[part]['title']}" for part in PARTS)
    add("--part", default=DEFAULT_PARTS, help=f"parts, as in `ab` (default: %(default)s); {parts}")
    add(
        "--repeats",
        type=int,
        help="number of samples of each trainer (default: 5; 3 for larger models)",
    )
    add(
        "--quick",
        action="store_true",
        help="measure for minutes only, to see that it works; writes to benchmarks/quick/",
    )
    add("--models", nargs="+", help="names of models, as in the tables (default: all)")
    add("--resume", action="store_true", help="measure only what the folder does not contain yet")
    tiny = ROOT / "models" / "tiny-qwen2"
    add("--model", type=Path, default=tiny, help="folder of the tiny model")
    add("--out", type=Path, help="folder to write the figures and the page to")
    return parser


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # skip Python's finalisation, in which libraries print warnings
