"""The options of `rapid plan`, in a module that every `rapid` command can import fast."""

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
        parse = _parse_share_or_zero if field == "spread" else _parse_share
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


def _parse_share(text: str) -> float:
    """Parse a number above 0 and at most 1."""
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not in (0, 1]")
    return float(text)


def _parse_share_or_zero(text: str) -> float:
    """Parse a number from 0 to 1."""
    return 0.0 if float(text) == 0 else _parse_share(text)


def _build_pair_parser(convert: Callable) -> Callable:
    """Return a function that parses NAME=VALUE into the name and the result of `convert(VALUE)`."""

    def parse_pair(text: str):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        return name, convert(value)

    return parse_pair
