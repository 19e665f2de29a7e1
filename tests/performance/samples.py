"""Samples as the parts take them."""


def sample(seconds: float, **others) -> dict:
    """Return a sample of 64 completions, with half of the time in sampling."""
    return {
        "seconds": seconds,
        "cpu_seconds": seconds,
        "cpu_sampling": 0.5 * seconds,
        "tokens": 64 * 150,
        "steps": 4,
        "completions": 64,
        "length": 30.0,
        "solved": 0.1,
        "alive": 0.34,
        "optimizer": 0.01 * seconds,
        "phases": {"sampling": 0.5 * seconds, "backpropagation": 0.47 * seconds, "other": 0.02},
    } | others


PAIR = {"stock": [sample(2.0), sample(2.2), sample(2.4)], "rapid": [sample(1.0)] * 3}
FLOOR = {
    "sampler": {"seconds": 0.4, "length": 30.0},
    "operations": {"least": 1e9, "all": 6e9},
    "rate": 1e10,
}
MEMORY = {
    "stock": [{"peak": 900.0, "before": 800.0}],
    "rapid": [{"peak": 850.0, "before": 800.0}],
}
VERDICTS = {
    "correct": [{"latencies": [0.1] * 19 + [0.5], "rewarded": 20}] * 3,
    "mistaken": [{"latencies": [0.02, 0.03], "rewarded": 1}],
}
