"""The options of `rapid plan`. Every `rapid` command imports this module, so it imports little."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from rapid.arguments import build_positive_type


def add_plan_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `rapid plan`."""
    add = command.add_argument
    rates = command.add_mutually_exclusive_group()
    rates.add_argument(
        "--calibrate", type=Path, metavar="RUNS",
        help="folder of runs whose measured speed is used (default: experiments/NAME/runs, or "
        "runs)",
    )  # fmt: skip
    rates.add_argument(
        "--gpu",
        help="use the published speed (operations and bytes per second) of a GPU, such as a6000 "
        "or h100",
    )
    add(
        "--report", choices=["studies", "arena"], default="",
        help="plan the jobs of this report (default: those of the paper's tables)",
    )  # fmt: skip
    count, positive = build_positive_type(int), build_positive_type(float)
    add("--gpus", type=count, default=1, help="number of GPUs (default: 1)")
    cores_help = "number of CPU cores (default: this machine's)"
    add("--cores", type=count, default=os.cpu_count(), help=cores_help)
    add("--memory", type=positive, help="GB of memory of a GPU, or of a process on CPUs")
    # Expectations about completions: each option sets a field of `rapid.cost.expected.Expected`.
    shares = {
        "--completion-length": ("length", "mean length of completions, as a share of the limit"),
        "--length-spread": ("spread", "standard deviation of lengths, divided by their mean"),
        "--signal": ("signal", "share of groups whose rewards differ"),
        "--rewarded": ("rewarded", "share of groups with at least one reward"),
        "--kept": ("kept", "share of the teacher's completions that are correct"),
    }
    for option, (field, description) in shares.items():
        parse = _build_share_parser(may_be_zero=field == "spread")
        add(option, dest=field, type=parse, metavar="SHARE", help=description)
    add(
        "--prompt-length", dest="prompt", type=positive, metavar="TOKENS",
        help="mean length of prompts",
    )  # fmt: skip
    add(
        "--verdict-seconds", type=_build_pair_parser(positive),
        action="append", default=[], metavar="BENCHMARK=S",
        help="seconds per verdict of a benchmark",
    )  # fmt: skip
    add(
        "--config", type=_build_pair_parser(Path), action="append", default=[],
        metavar="MODEL=FILE", help="config.json of a model whose size is not known",
    )  # fmt: skip


def _build_share_parser(*, may_be_zero: bool) -> Callable[[str], float]:
    """Return a function that parses a number above 0 (or also 0) and at most 1."""

    def parse_share(text: str) -> float:
        share = float(text)
        if not (0 < share <= 1 or (share == 0 and may_be_zero)):
            allowed = "from 0 to 1" if may_be_zero else "above 0 and at most 1"
            raise argparse.ArgumentTypeError(f"{text} is not {allowed}")
        return share

    parse_share.__name__ = "share"  # in argparse's message about a text that is no number
    return parse_share


def _build_pair_parser(convert: Callable) -> Callable:
    """Return a function that parses NAME=VALUE into the name and the result of `convert(VALUE)`."""

    def parse_pair(text: str):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        return name, convert(value)

    parse_pair.__name__ = "NAME=VALUE"  # in argparse's message if `convert` fails
    return parse_pair
