"""Whether batches, groups and processes fit each other: what is looked at once all parameters are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rapid.algorithms import parse

if TYPE_CHECKING:
    from rapid.params import Params


def message(key: str, value: Any, allowed: str) -> str:
    """What is said of a value that cannot be used."""
    return f"{key}: {value!r} is not allowed; allowed: {allowed}"


def check_batches(params: Params) -> None:
    """Look at what all algorithms share, then at each on each benchmark.

    Raises:
        ValueError: with the first key that does not fit, and what does.
    """
    group, micro = params.training.group_size, params.training.micro_batch
    if micro % group:
        allowed = f"a multiple of training.group_size, {group}"
        raise ValueError(message("training.micro_batch", micro, allowed))
    if params.sft.batch % (per_pass := params.sft.micro_batch * params.compute.processes):
        allowed = f"a multiple of sft.micro_batch x compute.processes, {per_pass}"
        raise ValueError(message("sft.batch", params.sft.batch, allowed))
    for name, benchmark in params.benchmarks.items():
        if max(benchmark.pass_at) > params.evaluation.samples:
            allowed = f"at most evaluation.samples, {params.evaluation.samples}"
            raise ValueError(message(f"benchmarks.{name}.pass_at", benchmark.pass_at, allowed))
        for algorithm in params.algorithms(name):
            _check_algorithm(params, name, algorithm)


def _check_algorithm(params: Params, benchmark: str, name: str) -> None:
    """Whether an algorithm's batches are whole groups, with prompts enough for one, and can be shared."""
    sizes, algorithm = params.benchmarks[benchmark], parse(name)
    if algorithm.kind == "sft":
        return
    group = algorithm.changes.group_size or params.training.group_size
    n_step = algorithm.changes.n_step or sizes.n_step
    if n_step % group:
        key = f"benchmarks.{benchmark}.n_step" if not algorithm.changes.n_step else "n_step"
        allowed = f"a multiple of the group size of {name}, {group}"
        raise ValueError(message(key, n_step, allowed))
    largest = algorithm.H * n_step // group
    if sizes.train < largest:
        allowed = (
            f"at least {largest}, the prompts of an inference batch of {name} "
            "(H x n_step / group size)"
        )
        raise ValueError(message(f"benchmarks.{benchmark}.train", sizes.train, allowed))
    sampled = params.naive_grpo.sampling_batch
    if algorithm.kind == "naive-grpo" and params.compute.sampler == "vllm" and sampled % group:
        allowed = f"a multiple of the group size, {group}: vLLM samples whole groups"
        raise ValueError(message("naive_grpo.sampling_batch", sampled, allowed))
    _check_processes(params, benchmark, name, algorithm.H * n_step)


def _check_processes(params: Params, benchmark: str, name: str, completions: int) -> None:
    """Whether processes can share the completions of an inference batch."""
    compute = params.compute
    if compute.serves(parse(name).kind):  # as many train as divide them
        if compute.nodes > 1:
            allowed = f"1 with {name}, whose vLLM server is on the trainer's machine"
            raise ValueError(message("compute.nodes", compute.nodes, allowed))
    elif completions % compute.processes:
        allowed = (
            f"a divisor of {completions}, the completions of an inference batch of {name} on "
            f"{benchmark} (H x n_step)"
        )
        raise ValueError(message("compute.processes", compute.processes, allowed))
