"""The unbiased estimator of pass@k."""

from itertools import combinations

import pytest

from rapid.stages.evaluate import pass_at_k


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("correct", [0, 1, 3, 6])
def test_it_is_the_share_of_subsets_with_a_correct_one(correct, k):
    completions = [True] * correct + [False] * (6 - correct)
    subsets = list(combinations(completions, k))
    assert pass_at_k(6, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="pass@8 needs at least 8 samples"):
        pass_at_k(4, 1, 8)
