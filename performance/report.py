"""`python -m performance.report [FOLDER]`: result files -> FOLDER/README.md.

Everything is computed from the raw samples in the files: seconds per 1,000 completions, medians with
quartiles, and ratios within pairs.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from performance.expectations import expectations
from performance.results import FOLDER, PARTS, read
from performance.summary import PHASES, middle, percentile, phase, ratios
from rapid.artifacts.files import write_text

HEAD = """# Performance

Made by `make bench`; this page by `python -m performance.report` from the JSON files beside it, which
hold every sample. Figures are medians with quartiles; "faster" is the ratio within pairs of samples
that were taken in turns. All in float32, on one thread bound to one core, sampling with transformers.
"""


def render(documents: dict[str, dict]) -> str:
    """The page."""
    sections = [HEAD, _expectations(documents)]
    for part, document in documents.items():
        sections.append(f"## ({part}) {PARTS[part]}\n\n{SECTIONS[part](document)}")
        sections += [f"Not measured: {line}.\n" for line in document["missing"]]
    sections.append(_provenance(documents))
    return "\n".join(sections)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; columns after the first are set flush right."""
    head = list(head)
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def per_thousand(samples: list[dict]) -> list[float]:
    """Seconds per 1,000 completions of each sample."""
    return [1000 * sample["seconds"] / sample["completions"] for sample in samples]


def _mean(samples: list[dict], name: str) -> float | None:
    values = [sample[name] for sample in samples if sample[name] is not None]
    return sum(values) / len(values) if values else None


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


def _seconds(values: list[float]) -> str:
    found = middle(values)
    return found.text(_digits(found.median))


def _pair(row: dict, slow: str, fast: str) -> tuple[str, str, str]:
    """Seconds per 1,000 completions of both sides, and how much faster one is."""
    slow_ones, fast_ones = (per_thousand(row["sides"][side]) for side in (slow, fast))
    faster = middle(ratios(slow_ones, fast_ones))
    return _seconds(slow_ones), _seconds(fast_ones), faster.text(2, "x")


def _expectations(documents: dict[str, dict]) -> str:
    rows = [
        [
            one.text,
            one.found,
            {True: "holds", False: "**does not hold**", None: "not measured"}[one.holds],
        ]
        for one in expectations(documents)
    ]
    return "## Expectations\n\n" + table(["Expected", "Found", ""], rows)


def _against(document: dict) -> str:
    rows = []
    for row in document["rows"]:
        sides, setting = row["sides"], row["setting"]
        samples = sides["rapid"]
        rate = _share(row["rate"]) or f"real grader ({_share(_mean(samples, 'solved'))})"
        shape = f"{setting['n_step']}, {setting['micro_batch']}"
        lengths = " / ".join(f"{_mean(sides[side], 'length'):.1f}" for side in ("stock", "rapid"))
        alive = _share(_mean(samples, "alive"))
        rows.append([row["model"], shape, rate, alive, *_pair(row, "stock", "rapid"), lengths])
    head = ["Model", "N_step, micro-batch", "Solve rate", "Groups with a reward"]
    head += ["GRPOTrainer", "RapidTrainer", "Faster", "Tokens a completion"]
    return (
        "Seconds per 1,000 completions, all trained on; H=4, groups of 4. A set solve rate comes from "
        "a hash of prompt and completion, and costs nothing. Tokens: GRPOTrainer / RapidTrainer.\n\n"
        + table(head, rows)
    )


def _phases(document: dict) -> str:
    rows = []
    for row in document["rows"]:
        samples, setting = row["sides"]["rapid"], row["setting"]
        parts = [[phase(sample, name) for sample in samples] for name in PHASES]
        parts.append([sample["optimizer"] for sample in samples])
        counts = [sample["completions"] for sample in samples]
        cells = [f"{middle(ratios(part, counts)).median * 1000:.2f}" for part in parts]
        other = [phase(sample, "other") / sample["seconds"] for sample in samples]
        share = middle([100 * one for one in other]).text(1, "%")
        shape = [f"{setting['H']}", f"{setting['n_step']}"]
        rows.append([*shape, _seconds(per_thousand(samples)), *cells, share])
    first = document["rows"][0]
    return (
        f"{first['model']}, solve rate {_share(first['rate'])}; seconds per 1,000 completions. "
        "Backpropagation holds the optimizer's step, which is also shown by itself; other is all that "
        "is in no phase.\n\n"
        + table(["H", "N_step", "All", *PHASES, "the optimizer's step", "other's share"], rows)
    )


def _savings(document: dict) -> str:
    rows = []
    for row in document["rows"]:
        wait = f"{row['wait'] * 1000:.0f} ms" if row["wait"] else "0"
        rows.append([row["saving"].replace("_", "\\_"), wait, *_pair(row, "plain", "saved")])
    first = document["rows"][0]
    return (
        f"{first['model']}, solve rate {_share(first['rate'])}, H={first['setting']['H']}, "
        f"N_step={first['setting']['n_step']}; seconds per 1,000 completions. Plain is RapidTrainer with "
        "all savings off. `sync_in_one_call` is vLLM's, and not measured here.\n\n"
        + table(["Switched on", "A verdict takes", "Plain", "With it", "Faster"], rows)
    )


def _sizes(document: dict) -> str:
    made = []
    titles = {
        "length": "Tokens of each completion",
        "N_inference": "N_inference (completions sampled at once; N_step=16)",
    }
    for what, title in titles.items():
        rows = []
        for row in document["rows"]:
            if row["varied"] == what:
                setting = row["setting"]
                batch = setting["H"] * setting["n_step"]
                value = setting["length"] if what == "length" else batch
                rows.append([f"{value}", *_pair(row, "stock", "rapid")])
        if rows:
            made.append(table([title, "GRPOTrainer", "RapidTrainer", "Faster"], rows))
    rate = _share(document["rows"][0]["rate"])
    return f"Seconds per 1,000 completions, solve rate {rate}.\n\n" + "\n".join(made)


def _floor(document: dict) -> str:
    rows = []
    for row in document["rows"]:
        found = floors(row)
        rows.append(
            [
                row["model"],
                _share(row["rate"]),
                _seconds(found["wall"]),
                _seconds(found["sampler"]),
                _seconds(found["products_least"]),
                _seconds(found["products_all"]),
                f"{middle([one['rate'] / 1e9 for one in row['floors']]).median:.0f}",
                _middle_text(found["to_least"]),
                _middle_text(found["to_all"]),
            ]
        )
    head = [
        "Model",
        "Solve rate",
        "RapidTrainer",
        "Sampler alone",
        "Products, least",
        "Products, all",
    ]
    head += ["GFLOP/s", "RapidTrainer / least floor", "RapidTrainer / whole floor"]
    return (
        "Seconds per 1,000 completions. The floor is `transformers.generate` on the same prompts plus the "
        "matrix products of forward and backward at this machine's measured rate: in the least floor of "
        "the groups that contribute to the gradient, with each prompt once; in the whole floor of every "
        "completion with its prompt. Element-wise work is in neither.\n\n" + table(head, rows)
    )


def floors(row: dict) -> dict[str, list[float]]:
    """Seconds per 1,000 completions of what a floor is made of, and the ratios to it."""
    samples, measured = row["sides"]["rapid"], row["floors"]
    counts = [sample["completions"] for sample in samples]

    def scaled(seconds: Iterable[float]) -> list[float]:
        return [1000 * one / count for one, count in zip(seconds, counts, strict=True)]

    found = {
        "wall": per_thousand(samples),
        "sampler": scaled(one["sampler"]["seconds"] for one in measured),
    }
    for amount in ("least", "all"):
        products = scaled(one["operations"][amount] / one["rate"] for one in measured)
        floor = [a + b for a, b in zip(found["sampler"], products, strict=True)]
        found[f"products_{amount}"] = products
        found[f"to_{amount}"] = ratios(found["wall"], floor)
    return found


def _middle_text(values: list[float]) -> str:
    return middle(values).text(2, "x")


def _memory(document: dict) -> str:
    rows = []
    for row in document["rows"]:
        sides = row["sides"]
        cells = [_seconds([one["peak"] for one in sides[side]]) for side in ("stock", "rapid")]
        grown = [
            _seconds([one["peak"] - one["before"] for one in sides[side]])
            for side in ("stock", "rapid")
        ]
        rows.append([row["model"], *cells, *grown])
    head = ["Model", "GRPOTrainer", "RapidTrainer"]
    head += ["GRPOTrainer, training only", "RapidTrainer, training only"]
    return (
        "Largest resident size of a fresh process (VmHWM), 1e6 bytes; and how far it is above that with "
        "the model loaded, before training.\n\n" + table(head, rows)
    )


def _verdicts(document: dict) -> str:
    rows = []
    for row in document["rows"]:
        for side, samples in row["sides"].items():
            latencies = [1000 * one for sample in samples for one in sample["latencies"]]
            rates = [len(one["latencies"]) / sum(one["latencies"]) for one in samples]
            rewarded = sum(one["rewarded"] for one in samples) / len(latencies)
            cells = [f"{len(latencies):,}", _share(rewarded), _seconds(rates)]
            cells += [f"{percentile(latencies, share):.1f}" for share in (50, 95)]
            rows.append([VERDICTS_ON[row["benchmark"]], side, *cells])
    head = ["Completions", "", "Verdicts", "Rewarded", "Verdicts a second"]
    head += ["Median latency, ms", "95th percentile, ms"]
    return (
        "Embedded problems, with their solutions and a mistake each, one after the other: the grader "
        "and its processes share one core. Problems are prepared before, and no verdict is a remembered "
        "one. An answer that is written as the known one is right without a comparison.\n\n"
        + table(head, rows)
    )


def _provenance(documents: dict[str, dict]) -> str:
    rows = []
    for part, one in documents.items():
        options = ", ".join(f"{name} {value}" for name, value in one["options"].items())
        own = [
            sample["cpu_seconds"] / sample["seconds"]
            for row in one["rows"]
            for samples in row["sides"].values()
            for sample in samples
            if "cpu_seconds" in sample
        ]
        own = _share(middle(own).median) if own else ""
        commit, plus, dirty = one["commit"].partition("+")
        rows.append([part, one["date"], commit[:10] + plus + dirty, one["hardware"], options, own])
    packages: dict[str, str] = {}
    for one in documents.values():
        packages |= one["versions"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    head = ["Part", "Date", "Commit", "Hardware", "Options", "CPU time / time"]
    return (
        "## Where these figures come from\n\n"
        "CPU time over wall-clock time is the median of all samples: well below 100% something else "
        f"used the core.\n\n{table(head, rows)}\nVersions: {versions}.\n"
    )


SECTIONS: dict[str, Callable[[dict], str]] = {
    "a": _against,
    "b": _phases,
    "c": _savings,
    "d": _sizes,
    "e": _floor,
    "f": _memory,
    "g": _verdicts,
}
VERDICTS_ON = {"mbpp_plus": "programs", "math": "answers", "minif2f": "proofs"}


def main(arguments: list[str] | None = None) -> None:
    """Write the page of a folder."""
    arguments = sys.argv[1:] if arguments is None else arguments
    folder = Path(arguments[0]) if arguments else FOLDER
    documents = {part: one for part, one in read(folder).items() if one["rows"]}
    write_text(folder / "README.md", render(documents))
    for one in expectations(documents):
        holds = {True: "holds", False: "DOES NOT HOLD", None: "not measured"}[one.holds]
        print(f"{holds}: {one.text}: {one.found}")
    print(folder / "README.md")


if __name__ == "__main__":
    main()
