"""The options of `rapid plan`. It imports nothing else of this package: every command reads it."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

MOST_SPREAD = 5


def add_options(command: argparse.ArgumentParser, positive: Callable) -> None:
    """Add the options of `rapid plan`.

    Args:
        positive: returns a type of arguments, for a positive int or float.
    """
    add, share = command.add_argument, _number(0, 1, above=True)
    rates = command.add_mutually_exclusive_group()
    rates.add_argument(
        "--calibrate", type=Path, metavar="RUNS",
        help="take rates from the runs in this folder (default: the experiment's, or runs)",
    )  # fmt: skip
    rates.add_argument(
        "--gpu", help="take rates from the published ones of a GPU, as a6000 or h100"
    )
    add("--check", action="store_true", help="fit on some runs, predict the others, and compare")
    add(
        "--report", choices=["studies", "arena"], default="",
        help="plan what this report needs, instead of the tables",
    )  # fmt: skip
    add("--gpus", type=positive(int), default=1, help="how many there are (default: 1)")
    add("--cores", type=positive(int), default=os.cpu_count(), help="how many there are")
    add("--memory", type=positive(float), help="GB of a GPU, or that a process may have")
    # What is expected: `dest` is a field of `rapid.cost.expected.Expected`.
    add(
        "--completion-length", dest="length", type=share, metavar="SHARE",
        help="mean length of completions, as a share of the limit",
    )  # fmt: skip
    add(
        "--length-spread", dest="spread", type=_number(0, MOST_SPREAD), metavar="SPREAD",
        help="standard deviation of lengths over their mean, before the limit cuts them",
    )  # fmt: skip
    add(
        "--prompt-length", dest="prompt", type=positive(float), metavar="TOKENS",
        help="mean tokens of a prompt",
    )  # fmt: skip
    add("--signal", type=share, metavar="SHARE", help="groups whose rewards differ")
    add("--rewarded", type=share, metavar="SHARE", help="groups with any reward")
    add("--kept", type=share, metavar="SHARE", help="teacher's completions that are correct")
    add(
        "--verdict-seconds", type=_pair(positive(float)), action="append", default=[],
        metavar="BENCHMARK=S", help="seconds of a verdict on a benchmark",
    )  # fmt: skip
    add(
        "--config", type=_pair(Path), action="append", default=[], metavar="MODEL=FILE",
        help="config.json of a model of params.yaml whose size is not known",
    )  # fmt: skip


def _number(least: float, most: float, above: bool = False) -> Callable[[str], float]:
    """Return the type of an argument from `least`, or above it, to `most`."""

    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most or (above and value == least):
            interval = f"{'(' if above else '['}{least}, {most}]"
            raise argparse.ArgumentTypeError(f"{text} is not in {interval}")
        return value

    return number


def _pair(kind: Callable) -> Callable:
    """Return the type NAME=VALUE of an argument."""

    def pair(text: str):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        return name, kind(value)

    return pair
