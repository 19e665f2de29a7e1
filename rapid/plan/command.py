"""`rapid plan`: its options, and what it puts together of them."""

import argparse
import os
from pathlib import Path

from rapid.params import Params, load, read
from rapid.plan.advice import advise
from rapid.plan.assumptions import Assumptions, usual
from rapid.plan.check import check
from rapid.plan.estimates import Plant, estimates, total, warnings
from rapid.plan.fit import fit
from rapid.plan.gpus import gpu
from rapid.plan.measured import Measured
from rapid.plan.memory import CUDA_CONTEXT
from rapid.plan.roofline import Roofline
from rapid.plan.runs import read_runs
from rapid.plan.sizes import Shape, shapes
from rapid.plan.text import check_text, plan_text
from rapid.records import BadInput


class BadOptions(BadInput):
    """Options that contradict each other."""


def plan(args: argparse.Namespace) -> str:
    """What the command prints.

    Raises:
        BadInput: of params.yaml, options, runs or models that cannot be used.
    """
    params = load(read(*args.configfile))
    known = shapes(params, dict(args.config or ()))
    assumptions = Assumptions(
        args.completion_length,
        args.length_spread,
        args.prompt_length,
        args.signal,
        args.rewarded,
        args.kept,
        dict(args.verdict_seconds or ()),
    )
    if args.check:
        if args.gpu:
            raise BadOptions("--check compares with runs on disk: give --calibrate, not --gpu")
        return check_text(
            check(read_runs(args.calibrate, params), known, _usual(params, assumptions))
        )
    measured = None if args.gpu else _measured(args, params, known, assumptions)
    plant = _plant(args, params, known, assumptions, measured)
    capacity = args.gpus if plant.gpus else args.cores
    found = estimates(params, plant)
    return plan_text(
        params,
        plant,
        found,
        total(found, capacity),
        capacity,
        advise(params, plant),
        warnings(plant, found, capacity),
    )


def _measured(
    args: argparse.Namespace, params: Params, known: dict[str, Shape], assumptions: Assumptions
) -> Measured:
    return fit(read_runs(args.calibrate, params), known, _usual(params, assumptions))


def _usual(params: Params, assumptions: Assumptions):
    limit = max(one.max_completion_length for one in params.benchmarks.values())
    prompt = assumptions.prompt
    known = usual(limit)
    return known if prompt is None else type(known)(**{**vars(known), "prompt": prompt})


def _plant(
    args: argparse.Namespace,
    params: Params,
    known: dict[str, Shape],
    assumptions: Assumptions,
    measured: Measured | None,
) -> Plant:
    on_gpus = bool(args.gpu) or params.compute.device == "gpu"
    memory = args.memory * 1e9 if args.memory else gpu(args.gpu).memory if args.gpu else None
    if measured:
        verdicts = assumptions.verdicts(measured.verdict)
        machine = Measured(**{**vars(measured), "verdict": verdicts})
    else:
        machine = Roofline(gpu(args.gpu), known, assumptions.verdicts())
    return Plant(
        machine=machine,
        shapes=known,
        expect=assumptions.expected(params, measured),
        memory=memory,
        base=measured.base_memory if measured else CUDA_CONTEXT,
        gpus=on_gpus,
    )


def add_options(command: argparse.ArgumentParser, positive) -> None:
    """The options of `rapid plan`.

    Args:
        positive: a type of arguments, for a positive int or float.
    """
    add, share = command.add_argument, _share
    rates = command.add_mutually_exclusive_group()
    rates.add_argument(
        "--calibrate", type=Path, default=Path("runs"), metavar="RUNS",
        help="take rates from the runs in this folder (default: runs)",
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
        "--length-spread", type=float,
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


def _pair(kind):
    def pair(text: str):
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        return name, kind(value)

    return pair
