"""The options of `rapid plan`, apart from what they need: every command of `rapid` reads this file."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

MOST_SPREAD = 5


def add_options(command: argparse.ArgumentParser, positive: Callable) -> None:
    """The options of `rapid plan`.

    Args:
        positive: a type of arguments, for a positive int or float.
    """
    add, share = command.add_argument, _share
    rates = command.add_mutually_exclusive_group()
    rates.add_argument(
        "--calibrate", type=Path, metavar="RUNS",
        help="take rates from the runs in this folder (default: the experiment's, or runs)",
    )  # fmt: skip
    rates.add_argument(
        "--gpu", help="take rates from the published ones of a GPU, as a6000 or h100"
    )
    add("--check", action="store_true", help="fit on some runs, predict the others, and compare")
    add("--gpus", type=positive(int), default=1, help="how many there are (default: 1)")
    add("--cores", type=positive(int), default=os.cpu_count(), help="how many there are")
    add("--memory", type=positive(float), help="GB of a GPU, or that a process may have")
    add(
        "--completion-length", type=share, metavar="SHARE",
        help="mean length of completions, as a share of the limit",
    )  # fmt: skip
    add(
        "--length-spread", type=_spread,
        help="standard deviation of lengths over their mean, before the limit cuts them",
    )  # fmt: skip
    add("--prompt-length", type=positive(float), help="mean tokens of a prompt")
    add("--signal", type=share, metavar="SHARE", help="groups whose rewards differ")
    add("--rewarded", type=share, metavar="SHARE", help="groups with any reward")
    add("--kept", type=share, metavar="SHARE", help="teacher's completions that are correct")
    add(
        "--verdict-seconds", type=_pair(positive(float)), action="append", metavar="BENCHMARK=S",
        help="seconds of a verdict on a benchmark",
    )  # fmt: skip
    add(
        "--config", type=_pair(Path), action="append", metavar="MODEL=FILE",
        help="config.json of a model of params.yaml whose size is not known",
    )  # fmt: skip


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: above 0, at most 1")
    return value


def _spread(text: str) -> float:
    value = float(text)
    if not 0 <= value <= MOST_SPREAD:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to {MOST_SPREAD}")
    return value


def _pair(kind: Callable) -> Callable:
    """The type NAME=VALUE of an argument."""

    def pair(text: str):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        return name, kind(value)

    return pair
