"""Measures how many completions per second the reward functions in `rapid.rewards` grade.

    python -m performance.verdicts            print a table
    python -m performance.verdicts --write    also write it into performance/results/rewards.md

Each reward function is called once, as a trainer calls it, with correct and mistaken completions of
generated problems. Calls before the measured call start the graders and prepare the problems. All
completions differ, so no verdict comes from the cache.
"""

import argparse
import os
import time
from datetime import UTC, datetime

import psutil

from performance import results
from rapid.artifacts.files import write_text
from rapid.artifacts.manifests import describe_hardware, get_commit
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Exercise
from rapid.benchmarks.made import draw_exercises
from rapid.rewards import CodeReward, GradedReward, LeanReward, MathReward, close, count_cores
from rapid.text import render_markdown_table, shorten_commit

PAGE = results.FOLDER / "rewards.md"
PROBLEM_COUNTS = {MathReward: 500, CodeReward: 500, LeanReward: 100}
HEADS = ["reward", "workers", "verdicts", "verdicts per second", "first call, s", "MB per worker"]


def build_columns(reward: GradedReward, exercises: list[Exercise]) -> dict[str, list]:
    """Return the dataset's columns that the reward function needs."""
    rows = [exercise.problem.model_dump(exclude={"prompt"}) for exercise in exercises]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if isinstance(reward, LeanReward):
        columns["theorem"] = columns.pop("formal_statement")
    return columns


def measure_reward(reward: GradedReward, exercises: list[Exercise]) -> list[str]:
    """Measure a reward function with new graders, and return the cells of its row.

    Args:
        exercises: generated problems, each with a correct completion and mistaken ones.
    """
    workers = reward.workers or 1
    began = time.perf_counter()
    grade_all(reward, exercises[:1], [""])
    first_seconds = time.perf_counter() - began
    grade_all(reward, exercises, ["?"] * len(exercises))  # prepares the problems and workers
    pairs = [
        (exercise, completion)
        for exercise in exercises
        for completion in dict.fromkeys([exercise.correct, *exercise.mistakes])
    ]
    began = time.perf_counter()
    grade_all(reward, [exercise for exercise, _ in pairs], [text for _, text in pairs])
    verdicts_per_second = len(pairs) / (time.perf_counter() - began)
    memory = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
    close()
    return [
        reward.__name__,
        str(workers),
        f"{len(pairs):,}",
        f"{verdicts_per_second:,.0f}",
        f"{first_seconds:.1f}",
        f"{memory / workers / 1e6:,.0f}",
    ]


def grade_all(reward: GradedReward, exercises: list[Exercise], completions: list[str]) -> None:
    """Grade one completion of each exercise.

    Raises:
        AssertionError: a completion could not be graded.
    """
    prompts = completions  # any will do, because the columns have the problems
    rewards = reward(prompts, completions, **build_columns(reward, exercises))
    assert None not in rewards


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m performance.verdicts", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--write", action="store_true", help=f"write performance/results/{PAGE.name} too"
    )
    options = parser.parse_args(arguments)
    rows, load_average = [], os.getloadavg()[0]
    print(" | ".join(HEADS), flush=True)
    for reward_class, count in PROBLEM_COUNTS.items():
        benchmark = BENCHMARKS[reward_class.benchmark]
        exercises = draw_exercises(benchmark, seed=0, counts={"test": count})["test"]
        for workers in sorted({1, min(count_cores(), reward_class.max_workers)}):
            rows.append(measure_reward(reward_class(workers=workers), exercises))
            print(" | ".join(rows[-1]), flush=True)
    if options.write:
        commit, date = shorten_commit(get_commit(), 7), datetime.now(UTC).date()
        table = render_markdown_table(HEADS, rows)
        lines = ["# Verdicts per second", "By `python -m performance.verdicts`.", table]
        hardware = f"{describe_hardware()}, with a load average of {load_average:.1f} just before"
        lines.append(f"Measured on {date} at commit {commit}: {hardware}.")
        text = "\n\n".join(line.rstrip() for line in lines)
        write_text(PAGE, f"{text}\n")


if __name__ == "__main__":
    main()
