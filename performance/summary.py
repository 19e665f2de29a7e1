"""Computes the figures of a row of the benchmark's tables from the samples of its experiment.

The figures are medians with quartiles, ratios within pairs of samples, and times by phase. The keys
of samples are described in `performance.loops` and `performance.memory`.
"""

import math
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd

# Phases of RapidTrainer's clock. "backpropagation" includes the optimizer's steps.
PHASES = ("sampling", "grading", "sync", "backpropagation")


def round_number(value: float) -> float | None:
    """Return a value with six significant digits; None for NaN."""
    return None if math.isnan(value) else float(f"{value:.6g}")


def spread(values) -> list[float]:
    """Return the median, the lower and the upper quartile."""
    return [round_number(value) for value in np.percentile(values, (50, 25, 75))]


def summarize_timing(samples: dict[str, list[dict]]) -> dict:
    """Return the figures of a row of timings. Times are in seconds per 1,000 completions.

    Args:
        samples: samples of one training loop, or of several that took turns, by side. The last loop
            is compared with each other one, pair by pair (`faster_SIDE`; `faster` for the first).
            Figures without a side in their names are those of the last loop. `peak_SIDE` is the
            peak of memory, in 1e6 bytes. `saving` is the share of the first loop's time that the
            last one saves. `sampling_SIDE` and `grading_SIDE` are phases of RapidTrainer's clock.
    """
    frames = {side: pd.json_normalize(rows) for side, rows in samples.items()}
    peak_rate = max(frame.peak_rate.max() for frame in frames.values())
    figures: dict = {"tflops": round_number(peak_rate / 1e12)}
    for side, frame in frames.items():
        pace = frame.completions / frame.seconds
        figures |= {
            f"seconds_{side}": spread(1000 / pace),
            f"tokens_{side}": round_number(frame.length.mean()),
            f"pace_{side}": spread(pace),
            f"token_pace_{side}": spread(pace * frame.length),
            f"share_{side}": spread(frame.operations / frame.seconds / peak_rate),
            f"peak_{side}": spread(frame.memory),
        }
    *others, last_side = frames
    last = frames[last_side]
    shares = pd.concat(frame.cpu_seconds / frame.seconds for frame in frames.values())
    figures |= {
        "solved": round_number(last.solved.mean()),
        "alive": round_number(last.alive.mean()),  # share of groups with a rewarded completion
        "cpu_share": round_number(shares.median()),
    }
    ratios = {f"faster_{side}": spread(frames[side].seconds / last.seconds) for side in others}
    if others:
        figures |= ratios | {"faster": ratios[f"faster_{others[0]}"]}
        figures["saving"] = spread(1 - last.seconds / frames[others[0]].seconds)
    for side, frame in frames.items():
        if "phases.sampling" in frame:  # GRPOTrainer has no clock
            phases = _summarize_phases(frame)
            figures |= {f"{name}_{side}": phases[name] for name in ("sampling", "grading")}
    return figures | _summarize_phases(last)


def _summarize_phases(frame: pd.DataFrame) -> dict:
    """Return the median time of each phase, in seconds per 1,000 completions.

    "other" is computed here as the time outside of `PHASES`. The "other" of the trainer's clock
    would miss time between its phases. "optimizer" and "log_mu" are parts of "backpropagation",
    and are shown in addition.
    """
    columns = [f"phases.{name}" for name in PHASES]
    phases = frame.reindex(columns=columns).fillna(0.0).set_axis(PHASES, axis=1)
    phases["other"] = frame.seconds - phases.sum(axis=1)
    phases["optimizer"], phases["log_mu"] = frame.optimizer, frame.log_mu
    medians = 1000 * phases.div(frame.completions, axis=0).median()
    share = spread(phases["other"] / frame.seconds)
    return {**medians.map(round_number), "other_share": share}


def summarize_memory(samples: dict[str, list[dict]]) -> dict:
    """Return the figures of a row: peak of memory, and its increase by training, in 1e6 bytes."""
    figures = {}
    for side, rows in samples.items():
        frame = pd.DataFrame(rows)
        figures[f"peak_{side}"] = spread(frame.peak)
        figures[f"grown_{side}"] = spread(frame.peak - frame.before)
    return figures


def summarize_test(case: Element) -> dict:
    """Return the figures of a row from the XML element of a test in pytest's report."""
    words = case.get("name").removeprefix("test_").replace("_", " ")
    problem = next((part for part in case if part.tag in ("skipped", "failure", "error")), None)
    outcome = "passed"
    if problem is not None:
        outcome = f"{problem.tag}: {problem.get('message', '').partition(chr(10))[0]}"
    failed = outcome.startswith(("failure", "error"))
    return {"test": words, "said": outcome, "failed": failed, "seconds": float(case.get("time"))}


def summarize_verdicts(samples: list[dict]) -> dict:
    """Return the figures of a row: latencies of all verdicts, and verdicts per second by sample."""
    latencies = np.concatenate([sample["latencies"] for sample in samples])
    median, high = np.percentile(1000 * latencies, (50, 95))
    return {
        "verdicts": len(latencies),
        "rewarded": round_number(sum(sample["rewarded"] for sample in samples) / len(latencies)),
        "per_second": spread([1 / np.mean(sample["latencies"]) for sample in samples]),
        "median_ms": round_number(median),
        "percentile95_ms": round_number(high),
    }
