"""`python -m performance.report [FOLDER]`: FOLDER/summary.jsonl -> FOLDER/README.md."""

import sys
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

from performance.expectations import expectations
from performance.results import FOLDER, read
from rapid.artifacts.files import write_text
from rapid.artifacts.text import markdown

HEAD = """# Performance

Made by `make bench`; `python -m performance.report` writes this page from summary.jsonl beside it.
Figures are medians with quartiles; "faster" is the ratio within pairs of samples that were taken in
turns. All in float32, on one thread bound to one core, sampling with transformers.
"""
PROVENANCE = """## Where these figures come from

CPU time over wall-clock time is the median of a part's rows. Where it is well below 100%, something
else used the core.
"""
HOLDS = {True: "holds", False: "**does not hold**", None: "not measured"}


class Section(NamedTuple):
    """A part's section. Texts in braces are labels and figures of a row, of the first in `text`.

    Args:
        columns: head -> cell; by the row's `varied` where the part has several tables.
    """

    title: str
    text: str
    columns: dict[str, str] | dict[str, dict[str, str]]


PAIR = {
    "GRPOTrainer": "{seconds_stock}",
    "RapidTrainer": "{seconds_rapid}",
    "Faster": "{faster:2x}",
}
SECTIONS = {
    "a": Section(
        "RapidTrainer against TRL's GRPOTrainer",
        "Seconds per 1,000 completions, all trained on; H=4, groups of 4. A set solve rate comes "
        "from a hash of prompt and completion, and costs nothing. Tokens: GRPOTrainer / "
        "RapidTrainer.",
        {
            "Model": "{model}",
            "N_step, micro-batch": "{n_step}, {micro_batch}",
            "Solve rate": "{solve_rate}",
            "Groups with a reward": "{alive:.0%}",
            **PAIR,
            "Tokens per completion": "{tokens_stock:.1f} / {tokens_rapid:.1f}",
        },
    ),
    "b": Section(
        "Where the time goes",
        "{model}, solve rate {solve_rate}; seconds per 1,000 completions. Backpropagation includes "
        "the optimizer's step, which is also shown by itself; other is all that is in no phase.",
        {
            "H": "{H}",
            "N_step": "{n_step}",
            "All": "{seconds_rapid}",
            "sampling": "{sampling:.2f}",
            "grading": "{grading:.2f}",
            "sync": "{sync:.2f}",
            "backpropagation": "{backpropagation:.2f}",
            "other": "{other:.2f}",
            "the optimizer's step": "{optimizer:.2f}",
            "other's share": "{other_share:1%}",
        },
    ),
    "c": Section(
        "Each saving over the plain loop",
        "{model}, solve rate {solve_rate}, H={H}, N_step={n_step}; seconds per 1,000 completions. "
        "Plain is RapidTrainer with all savings off. `sync_in_one_call` is vLLM's, and not "
        "measured here.",
        {
            "Switched on": "{saving}",
            "A verdict takes": "{wait_ms:.0f} ms",
            "Plain": "{seconds_plain}",
            "With it": "{seconds_saved}",
            "Faster": "{faster:2x}",
        },
    ),
    "d": Section(
        "Cost against completion length and against N_inference",
        "Seconds per 1,000 completions, solve rate {solve_rate}.",
        {
            "length": {"Tokens of each completion": "{length}", **PAIR},
            "N_inference": {
                "N_inference (completions sampled at once; N_step=16)": "{N_inference}",
                **PAIR,
            },
        },
    ),
    "e": Section(
        "Distance to the floor",
        "Seconds per 1,000 completions. The floor is `transformers.generate` on the same prompts "
        "plus the matrix products of forward and backward at this machine's measured rate. The "
        "least floor takes only the groups that contribute to the gradient, with each prompt once; "
        "the whole floor takes every completion with its prompt. Element-wise work is in neither.",
        {
            "Model": "{model}",
            "Solve rate": "{solve_rate}",
            "RapidTrainer": "{seconds_rapid}",
            "Sampler alone": "{sampler}",
            "Products, least": "{products_least}",
            "Products, all": "{products_all}",
            "GFLOP/s": "{gflops:.0f}",
            "RapidTrainer / least floor": "{to_least:2x}",
            "RapidTrainer / whole floor": "{to_all:2x}",
        },
    ),
    "f": Section(
        "Peak memory",
        "Largest resident size of a fresh process (VmHWM), 1e6 bytes; and how far it is above that "
        "with the model loaded, before training.",
        {
            "Model": "{model}",
            "GRPOTrainer": "{peak_stock}",
            "RapidTrainer": "{peak_rapid}",
            "GRPOTrainer, training only": "{grown_stock}",
            "RapidTrainer, training only": "{grown_rapid}",
        },
    ),
    "g": Section(
        "How long a verdict takes",
        "Embedded problems, with a solution and a mistake each, graded one after the other: the "
        "grader and its processes share one core. Problems are prepared before, and no verdict "
        "comes from a cache. A completion whose answer is written as the known one is right without "
        "a comparison.",
        {
            "Completions": "{graded}",
            "": "{kind}",
            "Verdicts": "{verdicts:,}",
            "Rewarded": "{rewarded:.0%}",
            "Verdicts per second": "{per_second}",
            "Median latency, ms": "{median_ms:.1f}",
            "95th percentile, ms": "{percentile95_ms:.1f}",
        },
    ),
}


class Spread(list):
    """A median with its quartiles, printed as in 1.72x (1.65–1.80)."""

    def __format__(self, spec: str) -> str:
        """Format with the digits and the unit of a spec such as "2x"; fitting digits without one."""
        digits = int(spec[0]) if spec else 0 if self[0] >= 100 else 1 if self[0] >= 10 else 2
        scale = 100 if spec.endswith("%") else 1
        middle, low, high = (f"{scale * one:.{digits}f}" for one in self)
        return f"{middle}{spec[1:]} ({low}–{high})"


def render(documents: dict[str, dict]) -> str:
    """Return the page."""
    expected = [[one.text, one.found, HOLDS[one.holds]] for one in expectations(documents)]
    parts = [HEAD, "## Expectations\n\n" + markdown(["Expected", "Found", ""], expected)]
    for part, document in documents.items():
        parts.append(section(part, document["rows"]))
        parts += [f"Not measured: {line}.\n" for line in document["missing"]]
    return "\n".join([*parts, _provenance(documents)])


def section(part: str, rows: list[dict]) -> str:
    """Return a part's title, text and tables."""
    title, text, columns = SECTIONS[part]
    tables = [
        markdown(
            list(head), [[cell.format(**_values(row)) for cell in head.values()] for row in some]
        )
        for head, some in groupby(rows, lambda row: columns.get(row.get("varied"), columns))
    ]
    return f"## ({part}) {title}\n\n{text.format(**_values(rows[0]))}\n\n" + "\n".join(tables)


def _values(row: dict) -> dict:
    """Return what texts in braces stand for."""
    values = {name: Spread(one) if isinstance(one, list) else one for name, one in row.items()}
    if "saving" in row:
        values["saving"] = row["saving"].replace("_", "\\_")
    if "rate" in row:
        real = row["rate"] is None
        rate = f"real grader ({row['solved']:.0%})" if real else f"{row['rate']:.0%}"
        values["solve_rate"] = rate
    return values


def _provenance(documents: dict[str, dict]) -> str:
    rows, packages = [], {}
    for part, one in documents.items():
        packages |= one["versions"]
        options = ", ".join(f"{name} {value}" for name, value in one["options"].items())
        commit, plus, dirty = one["commit"].partition("+")
        shares = [row["cpu_share"] for row in one["rows"] if "cpu_share" in row]
        share = f"{median(shares):.0%}" if shares else ""
        made = [commit[:10] + plus + dirty, one["hardware"]]
        rows.append([part, one["date"], *made, options, share])
    head = ["Part", "Date", "Commit", "Hardware", "Options", "CPU time / time"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    return f"{PROVENANCE}\n{markdown(head, rows)}\nVersions: {versions}.\n"


def main(arguments: list[str] | None = None) -> None:
    """Write the page of a folder, and print which expectations hold."""
    arguments = sys.argv[1:] if arguments is None else arguments
    folder = Path(arguments[0]) if arguments else FOLDER
    documents = {part: one for part, one in read(folder).items() if one["rows"]}
    write_text(folder / "README.md", render(documents))
    for one in expectations(documents):
        print(f"{HOLDS[one.holds].strip('*')}: {one.text}: {one.found}")
    print(folder / "README.md")


if __name__ == "__main__":
    main()
