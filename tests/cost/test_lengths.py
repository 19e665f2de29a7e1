"""The longest of a batch of completions."""

import numpy as np
import pytest

from rapid.cost.expected import Expected


def test_lengths_without_spread_are_all_alike():
    assert Expected(limit=80, length=30, spread=0).longest(1000) == 30


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("mean", [20, 512, 1500, 2000])
def test_the_longest_of_one_is_the_mean(mean, spread):
    assert Expected(2048, mean, spread).longest(1) == pytest.approx(mean, rel=1e-3)


def test_memoryless_lengths_far_from_the_limit_have_the_harmonic_longest():
    """E max of n exponentials = mean x (1 + 1/2 + ... + 1/n)."""
    lengths = Expected(limit=20000, length=200, spread=1.0)
    assert lengths.longest(4) == pytest.approx(200 * (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=1e-3)


def test_the_longest_grows_with_the_batch_and_ends_at_the_limit():
    lengths = Expected(limit=2048, length=512, spread=1.0)
    found = [lengths.longest(n) for n in (1, 2, 4, 8, 64, 512, 10**6)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(2048, abs=1)


def test_the_longest_agrees_with_drawn_lengths():
    rng = np.random.default_rng(0)
    drawn = np.minimum(rng.gamma(4, 100, (20000, 16)), 600)  # spread 0.5
    lengths = Expected(limit=600, length=drawn.mean(), spread=0.5)
    assert lengths.longest(16) == pytest.approx(drawn.max(1).mean(), rel=0.01)
