"""`python -m performance.bench`: measure, write the figures, and the page from them.

Nothing else should run on the machine. The command takes a core as the pipeline's jobs do (it waits
for those that run) and keeps to one thread on it; part (h) also measures two processes on two.
Parts (j) and (k), which `make gpu` asks for, take a GPU instead, where there is one.
"""

import os
import sys
from functools import partial
from pathlib import Path

from tqdm import tqdm

from rapid.arguments import Parser
from rapid.text import suggest

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",  # in fresh processes: here tqdm is imported already
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # a GPU asked for must not spoil later forks
}
PROCESSES = 2  # of one training loop, in part (h)
QUICK = ROOT / "benchmarks" / "quick"  # not among the results that are kept


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    options = _parser().parse_args(arguments)
    _prepare(PROCESSES if "h" in options.part else 1, gpu=not {"j", "k"}.isdisjoint(options.part))
    from performance import parts, report, results

    folder = options.out or (QUICK if options.quick else results.FOLDER)
    plan = parts.Plan(options.repeats or (2 if options.quick else 5), options.quick)
    problems = options.problems.name if options.problems else "embedded"
    settings = {"repeats": plan.repeats, "quick": plan.quick, "problems": problems}
    if unknown := [part for part in options.part if part not in parts.PARTS]:
        sys.exit(f"bench: --part {unknown[0]}: no such part; known: {', '.join(parts.PARTS)}")
    asked = {part: parts.PARTS[part] for part in options.part}
    needed = dict.fromkeys(name for one in asked.values() for name in one.subjects)
    subjects, missing = _subjects([*needed], options)
    rows, lacking, todo = {}, {}, []
    for part, (names, build) in asked.items():
        rows[part] = results.measured(folder, part, settings) if options.resume else []
        lacking[part] = [f"{name}: {missing[name]}" for name in names if name in missing]
        done = {row["experiment"] for row in rows[part]}
        experiments = [
            one for name in names if name in subjects for one in build(plan, subjects[name])
        ]
        todo += [(part, one) for one in experiments if one.name not in done]
    failed = False
    form = "bench: {desc} {percentage:3.0f}%, {remaining} left"
    with tqdm(todo, bar_format=form, mininterval=0.1 if sys.stderr.isatty() else 20) as bar:
        for part, experiment in bar:
            bar.set_description_str(f"({part}) {experiment.name}")
            try:
                found = list(experiment.run())
            except RuntimeError as error:  # the others can be measured none the less
                _say(f"({part}) {experiment.name}: {error}")
                lacking[part].append(f"{experiment.name}: {str(error).splitlines()[-1]}")
                found, failed = [], True
            rows[part] += [{"experiment": experiment.name} | row for row in found]
            results.write(folder, part, rows[part], lacking[part], settings)
    report.main([str(folder)])
    return int(failed or any(row.get("failed") for some in rows.values() for row in some))


def _prepare(processes: int, gpu: bool) -> None:
    """Take a core for each process of a loop, or a GPU, then import what every loop needs."""
    os.environ |= ENVIRONMENT
    from rapid.resources.gpus import visible_gpus
    from rapid.resources.leases import bind, lease_cores, lease_gpus, usable_cores

    cores = []
    if gpu and visible_gpus():
        _say(f"on GPU {lease_gpus(1)[0]}; importing")
    else:
        cores = lease_cores(min(processes, len(usable_cores())))
        bind(cores[:1], 1)
        _say(f"on core {', '.join(map(str, cores))}; importing")
    from rapid.training.trl import without_vllm

    without_vllm()
    import transformers

    from performance import loops

    loops.CORES[:] = cores
    transformers.logging.disable_progress_bar()


def _subjects(names: list[str], options) -> tuple[dict, dict[str, str]]:
    """Return models, benchmarks and tests by name, and why others of them cannot be measured."""
    from performance import models
    from rapid.artifacts.files import BadInput
    from rapid.benchmarks import BENCHMARKS

    chosen = options.models or (models.QUICK if options.quick else models.NAMES)
    if unknown := [name for name in chosen if name not in models.NAMES]:
        meant = suggest(unknown[0], models.NAMES)
        names = ", ".join(models.NAMES)
        sys.exit(f"bench: --models {unknown[0]}: no such model; known: {names}{meant}")
    problems = models.read_problems(options.problems)
    sizes, quick = models.UNTRAINED, options.quick
    load = {size: partial(models.untrained, size, problems, quick) for size in sizes}
    load["tiny"] = partial(models.tiny, options.model, problems)
    load["smollm2"] = partial(models.smollm2, problems)
    subjects, missing = {}, {}
    for name in names:
        if name in models.NAMES and name not in chosen:
            continue
        try:
            if name in BENCHMARKS and (reason := BENCHMARKS[name].unavailable()):
                raise BadInput(reason)
            subjects[name] = load[name]() if name in load else name
        except BadInput as error:
            _say(f"{name}: {error}")
            missing[name] = str(error)
    return subjects, missing


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _parser() -> Parser:
    parser = Parser(prog="python -m performance.bench", description=__doc__)
    add = parser.add_argument
    add("--part", default="abcdefghilmn", help="which parts, as in `ac` (default: all)")
    add("--repeats", type=int, help="samples of each side (default: 5; 3 of smollm2)")
    add("--quick", action="store_true", help="minutes, to see that it works: benchmarks/quick/")
    add("--models", nargs="+", help="names of models, as in the tables (default: all)")
    add("--resume", action="store_true", help="measure what the folder does not have yet")
    tiny = ROOT / "models" / "tiny-qwen2"
    add("--model", type=Path, default=tiny, help="folder of the tiny model")
    add("--problems", type=Path, help="MBPP+ rows, .jsonl or .jsonl.gz")
    add("--out", type=Path, help="folder of the figures and of the page")
    return parser


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # without Python's finalisation, in which libraries complain about one another
