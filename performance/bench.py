"""`python -m performance.bench`: measure, write the JSON files, and the page from them.

Nothing else should run on the machine. The command takes a core as the pipeline's jobs do (it waits
for those that run) and keeps to one thread on it.
"""

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for a GPU must not spoil the processes forked later
}
QUICK = ROOT / "benchmarks" / "quick"  # not among the results that are kept


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    options = _parser().parse_args(arguments)
    _prepare()
    from performance import models, report, results
    from performance.parts import Plan, experiments

    folder = options.out or (QUICK if options.quick else results.FOLDER)
    repeats = options.repeats or (2 if options.quick else 5)
    plan = Plan(repeats, options.quick, options.problems)
    workloads, missing = _workloads(options)
    todo = experiments(plan, options.part, workloads)
    progress = Progress(sum(one.seconds for one in todo))
    kept = {"repeats": repeats, "quick": options.quick}
    kept["problems"] = options.problems.name if options.problems else "embedded"
    for part in options.part:
        rows, lacking = [], _missing(missing, part)
        for one in todo:
            if one.part == part:
                try:
                    rows += one.run(progress.begin(f"({part}) {one.name}", one.seconds))
                except models.NotAvailable as error:
                    lacking.append(f"{one.name}: {error}")
                progress.end()
                results.write(folder, part, rows, lacking, kept)
    report.main([str(folder)])
    return 0


def _prepare() -> None:
    """Take a core, then import what every loop needs."""
    os.environ |= ENVIRONMENT
    from rapid.machine.lease import lease_cores

    cores = lease_cores(1)
    _say(f"on core {cores[0]}; importing")
    from rapid.training.trl import without_vllm

    without_vllm()
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _workloads(options):
    """The models to measure, and for those that cannot be had, why not."""
    from performance import models
    from performance.parts import NO_MODEL

    if set(options.part) <= set(NO_MODEL):
        return [], {}
    problems = models.read_problems(options.problems)
    makers = {
        "tiny": lambda: models.tiny(options.model, problems),
        "smollm2": lambda: models.smollm2(problems),
    }
    found, missing = [], {}
    for name in options.models or (["tiny"] if options.quick else makers):
        try:
            found.append(makers[name]())
        except models.NotAvailable as error:
            _say(f"{name}: {error}")
            missing[name] = str(error)
    return found, missing


def _missing(reasons: dict[str, str], part: str) -> list[str]:
    """What a part lacks; some parts are about the tiny model only, some about none."""
    from performance.parts import NO_MODEL, REAL_MODEL

    return [
        f"{name}: {why}"
        for name, why in reasons.items()
        if part in REAL_MODEL or (name == "tiny" and part not in NO_MODEL)
    ]


class Progress:
    """Says on standard error what is being measured and how long it will take yet.

    Args:
        total: seconds that all should take; how far that is off is learned on the way.
    """

    def __init__(self, total: float):
        self._total, self._done, self._now = total, 0.0, 0.0
        self._began = self._said = time.monotonic()

    def begin(self, name: str, seconds: float):
        """What to call with the share of the experiment that is done."""
        self._name, self._now = name, seconds
        self._tell(0.0)
        return self._advance

    def end(self) -> None:
        self._done += self._now

    def _advance(self, share: float) -> None:
        if time.monotonic() - self._said > 20:
            self._tell(share)

    def _tell(self, share: float) -> None:
        self._said = time.monotonic()
        done = self._done + share * self._now
        left = self._total - done
        if done:
            left *= (self._said - self._began) / done
        _say(f"{self._name} {share:4.0%}, about {left / 60:.0f} min left")


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m performance.bench", description=__doc__)
    parser.add_argument("--part", default="abcdefg", help="which parts, as in `ac` (default: all)")
    parser.add_argument(
        "--repeats", type=int, help="samples of each side (default: 5; 3 of smollm2)"
    )
    parser.add_argument("--quick", action="store_true", help="two minutes, to see that it works")
    parser.add_argument("--models", nargs="+", choices=["tiny", "smollm2"], help="(default: both)")
    parser.add_argument(
        "--model",
        type=Path,
        default=ROOT / "models" / "tiny-qwen2",
        help="folder of the tiny model",
    )
    parser.add_argument("--problems", type=Path, help="MBPP+ rows, .jsonl or .jsonl.gz")
    parser.add_argument("--out", type=Path, help="folder of the JSON files and of the page")
    return parser


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # without Python's finalisation, in which libraries complain about one another
