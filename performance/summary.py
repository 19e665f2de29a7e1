"""Computes the figures of a row of the benchmark's tables from the samples of an experiment.

Figures are medians with quartiles, ratios within pairs of samples, and times by phase.
`performance.loops` and `performance.memory` describe the keys of samples.
"""

import math
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd

# Phases of RapidTrainer's clock.
PHASES = ("sampling", "grading", "sync", "backpropagation")


def round_number(value: float) -> float | None:
    """Return a value with six significant digits; None for NaN."""
    return None if math.isnan(value) else float(f"{value:.6g}")


def compute_quartiles(values) -> list[float]:
    """Return the median, the lower and the upper quartile."""
    return [round_number(value) for value in np.percentile(values, (50, 25, 75))]


def summarize_timing(turns: list[dict[str, list[dict]]]) -> dict:
    """Return the figures of a row of timings. Times are in seconds per 1,000 completions.

    Args:
        turns: for each pair of trainers that took turns, a dict of their samples by trainer's name.
            The last trainer is the same in all pairs. Without pairs: one dict, of a single trainer.

    Returns:
        Figures whose names end in a trainer's are of that trainer; others are of the last trainer,
        but `cpu_share` (CPU time per wall-clock time) is of all trainers. `speedup_over_NAME` is
        the speed of the last trainer relative to another one, pair by pair; `speedup` is the one
        over the first trainer. `peak_mb_NAME` is peak memory in 1e6 bytes. `saving` is the share
        of the first trainer's time that the last one saves. `sampling_NAME` and `grading_NAME` are
        phases of RapidTrainer's clock.
    """
    pairs = [{name: pd.json_normalize(rows) for name, rows in samples.items()} for samples in turns]
    last_name = [*pairs[0]][-1]
    last = pd.concat([pair[last_name] for pair in pairs], ignore_index=True)
    others = [(name, pair) for pair in pairs for name in pair if name != last_name]
    frames = {name: pair[name] for name, pair in others} | {last_name: last}
    figures: dict = {}
    for name, frame in frames.items():
        completions_per_second = frame.completions / frame.seconds
        figures |= {
            f"seconds_{name}": compute_quartiles(1000 / completions_per_second),
            f"tokens_{name}": round_number(frame.length.mean()),
            f"completions_per_second_{name}": compute_quartiles(completions_per_second),
            f"tokens_per_second_{name}": compute_quartiles(completions_per_second * frame.length),
            f"peak_mb_{name}": compute_quartiles(frame.memory),
        }
    cpu_shares = pd.concat(frame.cpu_seconds / frame.seconds for frame in frames.values())
    figures |= {
        "rewarded_share": round_number(last.rewarded_share.mean()),
        "rewarded_group_share": round_number(last.rewarded_group_share.mean()),
        "cpu_share": round_number(cpu_shares.median()),
    }
    speedups = {
        f"speedup_over_{name}": compute_quartiles(pair[name].seconds / pair[last_name].seconds)
        for name, pair in others
    }
    if speedups:
        figures |= speedups | {"speedup": next(iter(speedups.values()))}
        name, pair = others[0]
        figures["saving"] = compute_quartiles(1 - pair[last_name].seconds / pair[name].seconds)
    for name, frame in frames.items():
        if "phases.sampling" in frame:  # GRPOTrainer has no clock
            phases = _summarize_phases(frame)
            figures |= {f"{phase}_{name}": phases[phase] for phase in ("sampling", "grading")}
    return figures | _summarize_phases(last)


def _summarize_phases(frame: pd.DataFrame) -> dict:
    """Return the median time of each phase, in seconds per 1,000 completions.

    "other" is the time outside of `PHASES`. The clock's own "other" is not used, because it lacks
    the time between phases. "optimizer" and "log_mu" are parts of "backpropagation".
    """
    columns = [f"phases.{name}" for name in PHASES]
    phases = frame.reindex(columns=columns).fillna(0.0).set_axis(PHASES, axis=1)
    phases["other"] = frame.seconds - phases.sum(axis=1)
    phases["optimizer"], phases["log_mu"] = frame.optimizer, frame.log_mu
    medians = 1000 * phases.div(frame.completions, axis=0).median()
    share = compute_quartiles(phases["other"] / frame.seconds)
    return {**medians.map(round_number), "other_share": share}


def summarize_memory(samples: dict[str, list[dict]]) -> dict:
    """Return the figures of a row of memory in 1e6 bytes: the peak, and how much training adds."""
    figures = {}
    for name, rows in samples.items():
        frame = pd.DataFrame(rows)
        figures[f"peak_mb_{name}"] = compute_quartiles(frame.peak)
        figures[f"increase_mb_{name}"] = compute_quartiles(frame.peak - frame.before_training)
    return figures


def summarize_test(case: Element) -> dict:
    """Return a row with the outcome of a test.

    Args:
        case: the test's element in pytest's XML report.
    """
    test = case.get("name").removeprefix("test_").replace("_", " ")
    tags = ("skipped", "failure", "error")
    not_passed = next((element for element in case if element.tag in tags), None)
    outcome = "passed"
    if not_passed is not None:
        first_line = not_passed.get("message", "").partition("\n")[0]
        outcome = f"{not_passed.tag}: {first_line}"
    failed = outcome.startswith(("failure", "error"))
    return {"test": test, "outcome": outcome, "failed": failed, "seconds": float(case.get("time"))}


def summarize_verdicts(samples: list[dict]) -> dict:
    """Return the figures of a row of verdicts.

    Percentiles are over all verdicts; verdicts per second are computed for each sample.
    """
    latencies = np.concatenate([sample["latencies"] for sample in samples])
    median, percentile95 = np.percentile(1000 * latencies, (50, 95))
    return {
        "verdicts": len(latencies),
        "rewarded": round_number(sum(sample["rewarded"] for sample in samples) / len(latencies)),
        "per_second": compute_quartiles([1 / np.mean(sample["latencies"]) for sample in samples]),
        "median_ms": round_number(median),
        "percentile95_ms": round_number(percentile95),
    }
