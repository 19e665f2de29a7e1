"""Figures from samples: medians with quartiles, ratios within pairs, and seconds per phase."""

import math
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd

PHASES = ("sampling", "grading", "sync", "backpropagation")


def number(value: float) -> float | None:
    """Return a value with six significant digits, None for one that is not known."""
    return None if math.isnan(value) else float(f"{value:.6g}")


def spread(values) -> list[float]:
    """Return the median and the two quartiles."""
    return [number(value) for value in np.percentile(values, (50, 25, 75))]


def timing(sides: dict[str, list[dict]]) -> dict:
    """Return a row's figures. Times are seconds per 1,000 completions.

    Args:
        sides: samples of one training loop, or of several that took turns: the last is compared
            with the first, pair by pair. What else is said of one loop is said of the last.
    """
    frames = {side: pd.json_normalize(samples) for side, samples in sides.items()}
    seconds = {side: 1000 * frame.seconds / frame.completions for side, frame in frames.items()}
    figures = {f"seconds_{side}": spread(cost) for side, cost in seconds.items()}
    for side, frame in frames.items():
        training = 1000 * (frame.cpu_seconds - frame.cpu_sampling) / frame.completions
        figures |= {
            f"tokens_{side}": number(frame.length.mean()),
            f"run_{side}": number((frame.tokens / frame.completions).mean()),
            f"training_{side}": spread(training),
        }
    *others, ours = frames.values()
    if "peak_rate" in ours:  # how well the processor is used
        peak = max(frame.peak_rate.max() for frame in frames.values())
        figures["tflops"] = number(peak / 1e12)
        for side, frame in frames.items():
            pace = frame.completions / frame.seconds
            figures |= {
                f"pace_{side}": spread(pace),
                f"token_pace_{side}": spread(pace * frame.length),
                f"share_{side}": spread(frame.operations / frame.seconds / peak),
                f"peak_{side}": spread(frame.memory),
            }
    shares = pd.concat(frame.cpu_seconds / frame.seconds for frame in frames.values())
    figures |= {
        "solved": number(ours.solved.mean()),
        "alive": number(ours.alive.astype(float).mean()),
        "cpu_share": number(shares.median()),
    }
    if others:
        baseline, *_, compared = seconds.values()
        return figures | {"faster": spread(baseline / compared)}
    return figures | _phases(ours) | (_floors(ours) if "floor.rate" in ours else {})


def _phases(samples: pd.DataFrame) -> dict:
    """Return the median of each phase; "other" is all of the time that is in no other phase.

    The trainer's clock has an "other" too, which does not hold what happens outside of its phases.
    """
    columns = [f"phases.{name}" for name in PHASES]
    phases = samples.reindex(columns=columns).fillna(0.0).set_axis(PHASES, axis=1)
    phases["other"] = samples.seconds - phases.sum(axis=1)
    phases["optimizer"] = samples.optimizer
    medians = 1000 * phases.div(samples.completions, axis=0).median()
    share = spread(phases["other"] / samples.seconds)
    return {**medians.map(number), "other_share": share}


def _floors(samples: pd.DataFrame) -> dict:
    """Return what a floor is made of, and the ratio of the loop's time to each floor."""
    thousands = samples.completions / 1000
    sampler, rate = samples["floor.sampler.seconds"], samples["floor.rate"]
    figures = {"sampler": spread(sampler / thousands), "gflops": number(rate.median() / 1e9)}
    for amount in ("least", "all"):
        products = samples[f"floor.operations.{amount}"] / rate
        figures[f"products_{amount}"] = spread(products / thousands)
        figures[f"to_{amount}"] = spread(samples.seconds / (sampler + products))
    return figures


def spreads(samples: list[dict]) -> dict:
    """Return the median and the quartiles of each figure, over the samples that have one."""
    return {name: spread(values.dropna()) for name, values in pd.DataFrame(samples).items()}


def memory(sides: dict[str, list[dict]]) -> dict:
    """Return a row's figures: the peak, and how far training raised it; 1e6 bytes."""
    figures = {}
    for side, samples in sides.items():
        frame = pd.DataFrame(samples)
        figures[f"peak_{side}"] = spread(frame.peak)
        figures[f"grown_{side}"] = spread(frame.peak - frame.before)
    return figures


def operators(samples: list[dict]) -> dict:
    """Return a row's figures: the median of each kind."""
    return pd.DataFrame(samples).median().map(number).to_dict()


def test(case: Element) -> dict:
    """Return a row's figures, from a test's element in pytest's report."""
    words = case.get("name").removeprefix("test_").replace("_", " ")
    outcome = next((one for one in case if one.tag in ("skipped", "failure", "error")), None)
    said = "passed"
    if outcome is not None:
        said = f"{outcome.tag}: {outcome.get('message', '').partition(chr(10))[0]}"
    failed = said.startswith(("failure", "error"))
    return {"test": words, "said": said, "failed": failed, "seconds": float(case.get("time"))}


def verdicts(samples: list[dict]) -> dict:
    """Return a row's figures: latencies of all verdicts, and the rate of each sample."""
    latencies = np.concatenate([sample["latencies"] for sample in samples])
    median, high = np.percentile(1000 * latencies, (50, 95))
    return {
        "verdicts": len(latencies),
        "rewarded": number(sum(sample["rewarded"] for sample in samples) / len(latencies)),
        "per_second": spread([1 / np.mean(sample["latencies"]) for sample in samples]),
        "median_ms": number(median),
        "percentile95_ms": number(high),
    }
