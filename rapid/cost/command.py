"""`rapid plan`: what its options ask for, put together."""

import argparse
from dataclasses import replace

from rapid.artifacts.files import BadInput
from rapid.config.params import Params, load, read
from rapid.cost.advice import advise
from rapid.cost.assumptions import Assumptions, usual
from rapid.cost.check import check
from rapid.cost.estimates import Plant, estimates, total, warnings
from rapid.cost.expected import Expected
from rapid.cost.fit import fit
from rapid.cost.gpus import gpu
from rapid.cost.measured import Measured
from rapid.cost.memory import CUDA_CONTEXT
from rapid.cost.roofline import Roofline
from rapid.cost.runs import read_runs
from rapid.cost.sizes import Shape, shapes
from rapid.cost.text import check_text, plan_text


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


def _usual(params: Params, assumptions: Assumptions) -> Expected:
    """Of what the runs do not show."""
    limit = max(one.max_completion_length for one in params.benchmarks.values())
    return assumptions.over(usual(limit), limit)


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
        machine = replace(measured, verdict=assumptions.verdicts(measured.verdict))
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
