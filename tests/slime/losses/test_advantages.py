from __future__ import annotations

import statistics

import pytest

from slime.losses import group_advantages


def test_without_normalisation_raw_scores_are_the_advantages() -> None:
    assert group_advantages([1.0, -1.0, 1.0], [1, 2, 3], normalize=False) == [1.0, -1.0, 1.0]


def test_uneven_groups_are_normalised_by_their_index_not_by_position() -> None:
    rewards = [1.0, 5.0, 0.0, 7.0, 0.5, 9.0]
    groups = ["a", "b", "a", "b", "a", "b"]
    uneven = group_advantages([*rewards, 11.0], [*groups, "b"])
    a, b = [1.0, 0.0, 0.5], [5.0, 7.0, 9.0, 11.0]
    for position, value in ((0, 1.0), (2, 0.0), (4, 0.5)):
        assert uneven[position] == pytest.approx((value - 0.5) / (statistics.stdev(a) + 1e-6))
    for position, value in ((1, 5.0), (3, 7.0), (5, 9.0), (6, 11.0)):
        assert uneven[position] == pytest.approx((value - 8.0) / (statistics.stdev(b) + 1e-6))


def test_without_the_deviation_only_the_mean_is_subtracted() -> None:
    assert group_advantages([1.0, 3.0], [0, 0], by_std=False) == [-1.0, 1.0]


def test_groups_of_one_and_constant_groups_get_zero() -> None:
    assert group_advantages([1.0, 2.0, 2.0, 5.0, 6.0], [0, 1, 1, None, None]) == [0.0] * 5


def test_rewards_and_groups_must_match() -> None:
    with pytest.raises(ValueError, match="got 2 rewards but 1 group indices"):
        group_advantages([1.0, 2.0], [1])
