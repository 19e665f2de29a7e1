"""Rates from runs, by least squares of relative errors with coefficients that are not negative.

Each phase is fitted by itself, for each model over all of its benchmarks:

    sampling         decoding x steps of decoding + row x rows of these steps
    backpropagation  step x optimizer steps + token x tokens
    other            loop x optimizer steps + batch x inference batches
    imitation        seconds a token

Dynamic sampling is not fitted: its batches vary. The reference model's pass is in `other`, and is
fitted from what it adds there; where no run has one it is taken for a third of forward and backward.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean

import numpy as np
from scipy.optimize import nnls

from rapid.algorithms.names import parse
from rapid.cost.expected import Expected
from rapid.cost.measured import Measured, Rates
from rapid.cost.memory import process_bytes
from rapid.cost.runs import NoRuns, Observed
from rapid.cost.sizes import Shape
from rapid.cost.work import Work, rl_work, sft_work

FORWARD = 1 / 3  # of forward and backward


def fit(observed: list[Observed], shapes: dict[str, Shape], usual: Expected) -> Measured:
    """Rates of the machine that these runs were made on.

    Args:
        usual: what is assumed of anything that the runs do not show; prompts' lengths among it.

    Raises:
        NoRuns: no RL run among them.
    """
    expected = {key: seen(of_key, usual) for key, of_key in _by(observed, lambda o: o.key).items()}
    rates = {}
    for model, runs in _by(observed, lambda o: o.spec.run.model).items():
        works = [(one, observed_work(one, expected[one.key])) for one in runs]
        if any(one.spec.training for one in runs):
            rates[model] = _rates(works)
    if not rates:
        raise NoRuns("no RL run among those to calibrate with: sampling was not measured")
    graded = [one for one in observed if one.summary.completions]
    return Measured(
        hardware=observed[0].summary.hardware,
        runs=len(observed),
        rates=rates,
        shapes=shapes,
        verdict={
            name: sum(o.summary.runtime.grading for o in of) / sum(map(_graded, of))
            for name, of in _by(graded, lambda o: o.spec.run.benchmark).items()
        },
        startup={
            name: float(np.median([o.summary.runtime.startup for o in of]))
            for name, of in _by(observed, lambda o: o.spec.run.benchmark).items()
        },
        expected=expected,
        base_memory=_base_memory(observed, shapes, expected),
    )


def seen(observed: list[Observed], usual: Expected) -> Expected:
    """What the runs of one model on one benchmark showed, over what is usual."""
    own = [one for one in observed if one.spec.training]
    lengths = [one.summary.completion_length for one in own if one.summary.completion_length]
    signals = [o.signal for o in own if o.signal is not None and not _resamples(o)]
    signal = fmean(signals) if signals else usual.signal
    imitating = [one for one in observed if not one.spec.training]
    return Expected(
        length=fmean(lengths) if lengths else usual.length,
        spread=fmean(one.spread for one in own) if own else usual.spread,
        prompt=usual.prompt,
        signal=signal,
        rewarded=max(signal, _rewarded(own, signal)),
        kept=_kept(imitating, own, usual.kept),
    )


def observed_work(one: Observed, expected: Expected) -> Work:
    """What a run did, with the shares and lengths that it recorded itself."""
    steps = one.summary.optimizer_steps
    if one.spec.training is None:
        return sft_work(one.spec, steps, expected)
    length = one.summary.completion_length or expected.length
    own = replace(expected, length=length)
    return rl_work(one.spec, steps, own, run=one.summary.run)


def _rates(works: list[tuple[Observed, Work]]) -> Rates:
    rl = [(o, w) for o, w in works if o.spec.training]
    sampled = [(o, w) for o, w in rl if not _resamples(o)] or rl
    decoding, row = _solve(
        [
            [sum(s.calls * s.steps for s in w.sampling), sum(s.calls * s.rows for s in w.sampling)]
            for _, w in sampled
        ],
        [o.summary.runtime.sampling for o, _ in sampled],
    )
    step, token = _solve(
        [[w.training.steps, w.training.tokens] for _, w in rl],
        [o.summary.runtime.backpropagation for o, _ in rl],
    )
    plain = [(o, w) for o, w in rl if not w.training.reference_tokens]
    alike = plain or rl
    loop, batch = _solve(
        [[w.training.steps, w.sampling_batches] for _, w in alike],
        [o.summary.runtime.other for o, _ in alike],
    )
    imitating = [(o, w) for o, w in works if not o.spec.training]
    return Rates(
        decoding=decoding,
        row=row,
        step=step,
        token=token,
        loop=loop,
        batch=batch,
        reference=_reference(rl, loop, batch) if plain else FORWARD * _per_token(rl),
        sync=fmean(o.summary.runtime.sync / w.sampling_batches for o, w in rl),
        imitated=_per_token(imitating or rl),
    )


def _solve(features: list[list[float]], seconds: list[float]) -> tuple[float, float]:
    """Two coefficients, not negative, with least relative errors."""
    counted, measured = np.array(features), np.maximum(seconds, 1e-9)
    if not np.any(seconds):
        return 0.0, 0.0
    weighted = counted / measured[:, None]
    scale = np.maximum(weighted.max(axis=0), 1e-300)  # of like size, for the solver's sake
    found, _ = nnls(weighted / scale, np.ones(len(measured)))
    return tuple(float(value) for value in found / scale)


def _per_token(works: list[tuple[Observed, Work]]) -> float:
    tokens = sum(w.training.tokens for _, w in works)
    seconds = sum(o.summary.runtime.backpropagation for o, _ in works)
    return seconds / tokens if tokens else 0.0  # where nothing had a gradient, nothing was measured


def _reference(rl: list[tuple[Observed, Work]], loop: float, batch: float) -> float:
    """Seconds of a token of the reference's pass: what it adds to `other`."""
    having = [(o, w) for o, w in rl if w.training.reference_tokens]
    if not having:
        return FORWARD * _per_token(rl)
    added = sum(
        o.summary.runtime.other - loop * w.training.steps - batch * w.sampling_batches
        for o, w in having
    )
    return max(0.0, added) / sum(w.training.reference_tokens for _, w in having)


def _rewarded(own: list[Observed], signal: float) -> float:
    """Return the share of groups with any reward: importance weights run these after first steps.

    Unknown where no run says it: then half of the groups without signal are taken to be all right.
    """
    shares = [
        (one.summary.run * one.spec.H - signal) / (one.spec.H - 1)
        for one in own
        if one.spec.H > 1 and one.summary.run is not None and _tells_rewarded(one)
    ]
    return min(1.0, fmean(shares)) if shares else signal + (1 - signal) / 2


def _kept(imitating: list[Observed], own: list[Observed], usual: float) -> float:
    """From how many demonstrations sft took its steps, if the number of problems is known too."""
    if not imitating or not own:
        return usual
    spec, steps = own[0].spec, own[0].summary.optimizer_steps
    problems = steps * spec.n_step / (spec.training.group_size * spec.training.epochs)
    shares = []
    for one in imitating:
        params = one.spec.objective
        demonstrations = one.summary.optimizer_steps / params.epochs * params.batch
        shares.append(demonstrations / (problems * params.samples))
    return min(1.0, fmean(shares))


def _base_memory(observed: list[Observed], shapes: dict[str, Shape], expected: dict) -> float:
    """Resident bytes beyond what `process_bytes` explains."""
    beyond = [
        one.summary.peak_memory_mb * 1e6
        - process_bytes(one.spec, shapes[one.spec.run.model], expected[one.key], base=0.0)
        for one in observed
        if one.summary.peak_memory_mb
    ]
    return max(0.0, float(np.median(beyond))) if beyond else 0.0


def _by(items: Iterable[Observed], key: Callable) -> dict:
    found: dict = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _graded(one: Observed) -> int:
    return one.summary.completions


def _resamples(one: Observed) -> bool:
    return parse(one.spec.run.algorithm).algorithm.rounds(one.spec.objective) > 1


def _tells_rewarded(one: Observed) -> bool:
    """Return whether a run's share of groups follows from the shares with a signal and a reward."""
    algorithm, objective = parse(one.spec.run.algorithm).algorithm, one.spec.objective
    groups = [algorithm.gradient_groups(objective, on_policy) for on_policy in (True, False)]
    return groups == ["unequal", "rewarded"]
