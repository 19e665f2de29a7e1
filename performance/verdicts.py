"""Measure the verdicts a second of the reward functions in `rapid.rewards`.

    python -m performance.verdicts            print a table
    python -m performance.verdicts --write    also write it into performance/results/rewards.md

Each reward is called as a trainer calls it: once, with the correct completion and the mistakes of
made problems. A call before has started the graders and seen each problem. No completion comes
twice, so no verdict comes from memory.
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
PROBLEMS = {MathReward: 500, CodeReward: 500, LeanReward: 100}
HEADS = ["reward", "workers", "verdicts", "verdicts per second", "first call, s", "MB per worker"]


def build_columns(reward: GradedReward, exercises: list[Exercise]) -> dict[str, list]:
    """Return the columns of a dataset with these problems."""
    rows = [exercise.problem.model_dump(exclude={"prompt"}) for exercise in exercises]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if isinstance(reward, LeanReward):
        columns["theorem"] = columns.pop("formal_statement")
    return columns


def measure_reward(reward: GradedReward, exercises: list[Exercise]) -> list[str]:
    """Return the cells of a row: how fast a reward with new graders is."""
    workers = reward.workers or 1
    began = time.perf_counter()
    count_verdicts(reward, exercises[:1], [""])
    started = time.perf_counter() - began
    count_verdicts(reward, exercises, ["?"] * len(exercises))  # as many as there are workers start
    jobs = [
        (exercise, completion)
        for exercise in exercises
        for completion in dict.fromkeys([exercise.correct, *exercise.mistakes])
    ]
    began = time.perf_counter()
    count = count_verdicts(reward, [job[0] for job in jobs], [job[1] for job in jobs])
    rate = count / (time.perf_counter() - began)
    memory = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
    close()
    figures = f"{rate:,.0f}", f"{started:.1f}", f"{memory / workers / 1e6:,.0f}"
    return [reward.__name__, str(workers), f"{count:,}", *figures]


def count_verdicts(reward: GradedReward, exercises: list[Exercise], completions: list[str]) -> int:
    """Grade completions of exercises, and return how many there were."""
    rewards = reward(completions, completions, **build_columns(reward, exercises))
    assert None not in rewards
    return len(rewards)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m performance.verdicts", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--problems", type=int, help="of each kind (500 or, of Lean, 100)")
    parser.add_argument("--write", action="store_true", help=f"write results/{PAGE.name}")
    options = parser.parse_args(arguments)
    rows, (load, *_) = [], os.getloadavg()
    for kind, count in PROBLEMS.items():
        task = BENCHMARKS[kind.benchmark]
        exercises = draw_exercises(task, 0, {"test": options.problems or count})["test"]
        for workers in sorted({1, min(count_cores(), kind.most_workers)}):
            rows.append(measure_reward(kind(workers=workers), exercises))
            print(" | ".join(rows[-1]), flush=True)
    if options.write:
        commit, date = shorten_commit(get_commit(), 7), datetime.now(UTC).date()
        table = render_markdown_table(HEADS, rows)
        lines = ["# Verdicts a second", "By `python -m performance.verdicts`.", table]
        hardware = f"{describe_hardware()}, with a load average of {load:.1f} before"
        lines.append(f"Measured on {date} at commit {commit}: {hardware}.")
        text = "\n\n".join(line.rstrip() for line in lines)
        write_text(PAGE, f"{text}\n")


if __name__ == "__main__":
    main()
