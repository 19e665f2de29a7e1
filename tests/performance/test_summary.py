"""Figures are computed from raw samples."""

import pytest

from performance import summary


def sample(seconds: float, **others) -> dict:
    """Return a sample of 64 completions, with half of the time in sampling."""
    return {
        "seconds": seconds,
        "cpu_seconds": seconds,
        "cpu_sampling": 0.5 * seconds,
        "tokens": 64 * 150,
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


def test_a_median_stands_with_its_quartiles():
    assert summary.spread([1, 2, 3, 4, 100]) == [3, 2, 4]
    assert summary.spread([7.0]) == [7, 7, 7]


def test_speed_is_the_median_ratio_within_pairs():
    figures = summary.timing(PAIR)
    assert figures["faster"] == pytest.approx([2.2, 2.1, 2.3])
    assert figures["seconds_stock"] == pytest.approx([34.375, 32.8125, 35.9375])  # per 1,000
    assert figures["tokens_rapid"] == 30 and figures["cpu_share"] == 1
    assert figures["run_stock"] == 150
    assert figures["training_rapid"] == pytest.approx([0.5 * 1000 / 64] * 3)


def test_the_last_of_several_sides_is_compared_with_the_first():
    between = {"stock": PAIR["stock"], "other": [sample(9.0)] * 3, "rapid": PAIR["rapid"]}
    assert summary.timing(between)["faster"] == summary.timing(PAIR)["faster"]


def test_each_figure_of_samples_has_its_spread():
    samples = [{"a": 1, "b": 4.0}, {"a": 3, "b": float("nan")}]
    assert summary.spreads(samples) == {"a": [2, 1.5, 2.5], "b": [4, 4, 4]}


def test_other_is_all_that_is_in_no_phase():
    figures = summary.timing({"rapid": [sample(1.0)] * 3})
    assert figures["other_share"] == pytest.approx([0.03] * 3)
    assert figures["other"] == pytest.approx(0.03 * 1000 / 64, rel=1e-4)
    assert figures["sampling"] == pytest.approx(0.5 * 1000 / 64) and figures["grading"] == 0


def test_a_figure_that_is_not_known_is_none():
    assert summary.timing({"rapid": [sample(1.0, alive=None)]})["alive"] is None


def test_a_floor_is_the_sampler_and_the_matrix_products():
    figures = summary.timing({"rapid": [sample(1.0, floor=FLOOR)] * 3})
    assert figures["to_least"] == pytest.approx([1.0 / (0.4 + 0.1)] * 3)
    assert figures["to_all"] == pytest.approx([1.0 / (0.4 + 0.6)] * 3)
    assert figures["gflops"] == 10


def test_memory_is_the_peak_and_what_training_adds():
    figures = summary.memory(MEMORY)
    assert figures["peak_stock"] == [900] * 3 and figures["grown_rapid"] == [50] * 3


def test_latencies_are_of_all_samples_and_rates_of_each():
    figures = summary.verdicts(VERDICTS["correct"])
    assert (figures["verdicts"], figures["rewarded"]) == (60, 1)
    assert figures["per_second"] == pytest.approx([8.33333] * 3)
    assert (figures["median_ms"], figures["percentile95_ms"]) == (100, 120)
    figures = summary.verdicts(VERDICTS["mistaken"])
    assert (figures["rewarded"], figures["median_ms"]) == (0.5, 25)
