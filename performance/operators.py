"""What the time of a training loop is made of, by kind of operator, from torch.profiler."""

from torch.profiler import ProfilerActivity, profile

from performance.loops import Loop

KINDS = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention": ("aten::_scaled_dot_product",),
    "random": ("aten::uniform_", "aten::exponential_", "aten::log1p"),
}
profilers: list[profile] = []  # of this process, one at most


def measure(loop: Loop, steps: int) -> dict[str, float]:
    """Return seconds per 1,000 completions of each kind of operator, while a loop takes steps.

    "operators" are all that is of no other kind, "outside" is the time in no operator: Python's.
    """
    loop.call(start)
    sample = loop.run(steps)
    seconds = loop.call(stop)
    seconds["outside"] = sample["seconds"] - sum(seconds.values())
    return {name: 1000 * value / sample["completions"] for name, value in seconds.items()}


def start(trainer) -> None:
    """Profile this process from here on."""
    profilers.append(profile(activities=[ProfilerActivity.CPU]))
    profilers[-1].__enter__()


def stop(trainer) -> dict[str, float]:
    """Return the seconds in operators of each kind, without those that they called."""
    ended = profilers.pop()
    ended.__exit__(None, None, None)
    seconds = dict.fromkeys((*KINDS, "operators"), 0.0)
    for event in ended.key_averages():
        kinds = (kind for kind, names in KINDS.items() if event.key.startswith(names))
        seconds[next(kinds, "operators")] += event.self_cpu_time_total / 1e6
    return seconds
