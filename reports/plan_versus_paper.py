"""Planned runtimes beside the paper's: how well the model of cost tells one algorithm from another.

    python -m reports.plan_versus_paper --configfile params.yaml experiments/paper.yaml --gpu a6000

Absolute times depend on lengths that the paper does not give; ratios of two algorithms' runtimes
depend on them less. The paper's trainer skipped no group and resampled none, as here with a signal
in all.
"""

from pathlib import Path

from rapid.algorithms import PLAIN, RAPID
from rapid.arguments import Parser
from rapid.config.params import Params, load_files
from rapid.config.specs import Run, train_spec
from rapid.cost.estimates import Estimator
from rapid.cost.roofline import Roofline, gpu
from rapid.cost.shapes import shapes
from rapid.text import columns, duration
from reports import paper

REFERENCE = PLAIN.name
COMPARED = [*(name for name in paper.BASELINES if name != REFERENCE), *map(RAPID.at, (2, 4, 8, 16))]
EVERY_GROUP = 1.0  # has a signal: none is skipped or sampled anew


def rows(params: Params, name: str, given: dict[str, float]) -> list[list[str]]:
    """Return runtimes, planned and of the paper's Tables 1 and 3, and their ratios to pg's."""
    estimator = Estimator(params, Roofline(gpu(name), shapes(params, {})), given)
    model = params.tables.main.model

    def planned(benchmark: str, algorithm: str) -> float:
        run = Run(benchmark=benchmark, model=model, algorithm=algorithm, seed=0)
        return estimator.runtime(train_spec(params, run))

    made = []
    for benchmark in params.benchmarks:
        base, theirs = planned(benchmark, REFERENCE), paper.main(benchmark, REFERENCE, "runtime")
        for algorithm in (REFERENCE, *COMPARED):
            here = planned(benchmark, algorithm)
            there = paper.main(benchmark, algorithm, "runtime")
            ours, printed = here / base, there / theirs
            deviation = "" if algorithm == REFERENCE else f"{ours / printed - 1:+.0%}"
            shown = duration(here), duration(there), f"{ours:.2f}", f"{printed:.2f}", deviation
            made.append([benchmark, algorithm, *shown])
    return made


def main(arguments: list[str] | None = None) -> None:
    """Print the table of planned and printed runtimes."""
    parser = Parser(prog="python -m reports.plan_versus_paper", description=__doc__)
    parser.add_argument("--configfile", nargs="+", type=Path, required=True)
    parser.add_argument("--gpu", default="a6000")
    parser.add_argument("--completion-length", type=float, help="mean, as a share of the limit")
    parser.add_argument("--length-spread", type=float)
    args = parser.parse_args(arguments)
    lengths = {"length": args.completion_length, "spread": args.length_spread}
    given = {name: value for name, value in lengths.items() if value is not None}
    given |= {"signal": EVERY_GROUP, "rewarded": EVERY_GROUP}
    heads = ["benchmark", "algorithm", "planned", "paper", f"to {REFERENCE}", "paper", "deviation"]
    found = rows(load_files(*args.configfile), args.gpu, given)
    print(*columns([heads, *found], left=3), sep="\n")


if __name__ == "__main__":
    main()
