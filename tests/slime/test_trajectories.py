"""Tests that a trajectory of several samples is compared, counted and averaged as one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.errors import ConfigError, DataError
from slime.losses import group_advantages, group_counts, normalized_spans, steps_of
from slime.rollout.metrics import batch_metrics, pass_rate_metrics
from slime.training.core.batch import rewards_of
from slime.training.schedule import SURPLUS, ScheduleLimits, build_schedule
from slime.types import Sample, SampleStatus, by_trajectory, trajectories_of


def turns(trajectory: Any, count: int, reward: float, group: int = 0, **metadata: object) -> list[Sample]:
    """Returns one trajectory, with one sample for each turn."""
    return [
        Sample(
            group_index=group,
            index=trajectory,
            tokens=[1, 2, 3, 4],
            response_length=2,
            reward=reward,
            status=SampleStatus.COMPLETED,
            metadata=dict(metadata),
        )
        for _ in range(count)
    ]


FAILED_LONG, SOLVED_SHORT = turns(0, 9, -1.0), turns(1, 1, 1.0)
SOLVED_AND_NOT = [turns(0, 3, 1.0), turns(1, 1, 0.0)], [turns(2, 2, 0.0, 1), turns(3, 1, 0.0, 1)]
ONE_IN_FOUR = [sample for group in SOLVED_AND_NOT for trajectory in group for sample in trajectory]


def test_samples_of_a_group_with_the_same_index_are_a_trajectory_and_those_without_one_are_alone() -> None:
    samples = [*turns("a", 2, 0.0), *turns(None, 2, 0.0), *turns("a", 1, 0.0, group=1)]
    assert [len(part) for part in by_trajectory(samples)] == [2, 1, 1, 1]


def test_a_long_trajectory_weighs_no_more_in_its_group_than_a_short_one() -> None:
    samples = [*FAILED_LONG, *SOLVED_SHORT]
    found = rewards_of(Arguments(), samples)
    assert found == pytest.approx([-0.7071] * 9 + [0.7071], abs=1e-4)


def test_without_trajectories_every_sample_is_compared() -> None:
    assert group_advantages([-1.0] * 9 + [1.0], [0] * 10)[-1] == pytest.approx(2.846, abs=1e-3)


def test_trajectories_of_one_sample_are_normalised_exactly_like_samples() -> None:
    rewards, groups = [0.1, 0.7, 0.3, 0.9, 0.2], [0, 0, 0, 1, 1]
    samples = [Sample(index=i, group_index=g) for i, g in enumerate(groups)]
    together = group_advantages(rewards, groups, trajectories=trajectories_of(samples))
    assert together == group_advantages(rewards, groups)


def test_different_rewards_in_a_compared_trajectory_are_refused() -> None:
    samples = [*turns(0, 1, 0.0), *turns(0, 1, 1.0), *SOLVED_SHORT]
    with pytest.raises(DataError, match="reward of the whole trajectory"):
        rewards_of(Arguments(), samples)
    assert rewards_of(Arguments(disable_rewards_normalization=True), samples) == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(("key", "now"), [(None, "is not set"), ("sorce", "is sorce")])
def test_a_run_with_an_unknown_reward_key_ends_with_an_error(key: str | None, now: str) -> None:
    named: list[Any] = [{"score": 1.0, "acc": 0.0}, {"score": -1.0, "acc": 0.0}]
    samples = [Sample(index=i, reward=reward) for i, reward in enumerate(named)]
    with pytest.raises(
        ConfigError, match=f"with the keys acc, score: choose one with --reward-key, which {now}"
    ):
        rewards_of(Arguments(reward_key=key), samples)
    samples[1].reward = {"sorce": 2.0}  # one sample without it is not an error of the run
    with pytest.raises(DataError):
        rewards_of(Arguments(reward_key="sorce"), samples)
    assert rewards_of(Arguments(reward_key="sorce"), samples[1:]) == [0.0]


def test_a_group_of_one_trajectory_counts_as_one_without_signal() -> None:
    counts = group_counts([1.0] * 3, [0] * 3, trajectories_of(turns(0, 3, 1.0)))
    assert counts == {"groups": 1.0, "groups_of_one": 1.0, "groups_all_equal": 0.0}


def test_pass_rates_are_those_of_trajectories() -> None:
    assert pass_rate_metrics(ONE_IN_FOUR, None) == {"passrate/pass@1": 0.25, "passrate/pass@2": 0.5}


def test_the_mean_reward_is_over_trajectories_and_one_over_samples_is_also_reported(
    tmp_path: Path,
) -> None:
    args: Any = SimpleNamespace(reward_key=None, run_dir=str(tmp_path), engine_count=1)
    found = batch_metrics(args, SOLVED_AND_NOT)
    assert found["rollout/reward_mean"] == found["rollout/raw_reward"] == 0.25
    assert found["rollout/reward_mean_of_samples"] == pytest.approx(3 / 7)
    assert (found["rollout/trajectories"], found["rollout/batch_size"]) == (4, 7)
    assert found["rollout/zero_std/count"] == 1
    single = batch_metrics(args, [turns(0, 1, 1.0) + turns(1, 1, 0.0)])
    assert not {"rollout/trajectories", "rollout/reward_mean_of_samples"} & set(single)


def test_turns_without_indices_are_numbered_over_their_trajectory() -> None:
    samples = [*turns(0, 3, 1.0), *turns(1, 2, 0.0)]
    assert [spans[0].index for spans in steps_of(samples, None)] == [0, 1, 2, 0, 1]
    two_and_one = [
        *turns(0, 1, 0.0, step_wise={"step_scores": [1.0, 2.0], "step_token_spans": [[0, 1], [1, 2]]}),
        *turns(0, 1, 0.0, step_wise={"step_scores": [3.0]}),
        *turns(0, 1, 0.0, step_wise={"step_scores": [4.0], "step_indices": [7]}),
    ]
    assert [[span.index for span in spans] for spans in steps_of(two_and_one, None)] == [[0, 1], [2], [7]]


def test_turns_are_compared_with_the_same_turn_of_other_trajectories() -> None:
    samples = [*turns(0, 2, 0.0), *turns(1, 2, 1.0)]
    spans = normalized_spans(steps_of(samples, None), [sample.group_index for sample in samples])
    assert [part[0].reward for part in spans] == pytest.approx([-1.0, -1.0, 1.0, 1.0], abs=1e-5)


def test_a_single_step_in_its_bucket_keeps_its_reward_and_equal_ones_get_zero() -> None:
    samples = [*turns(0, 2, 0.5), *turns(1, 1, 0.5)]
    spans = normalized_spans(steps_of(samples, None), [0, 0, 0])
    assert [part[0].reward for part in spans] == [0.0, 0.5, 0.0]


def test_a_step_score_without_span_applies_to_all_sampled_tokens() -> None:
    [sample] = turns(0, 1, 9.0, step_wise={"step_scores": [0.25]})
    sample.loss_mask = [0, 1]
    assert [(s.start, s.end, s.index, s.reward) for s in steps_of([sample], None)[0]] == [(1, 2, 0, 0.25)]
    [two] = turns(0, 1, 9.0, step_wise={"step_scores": [0.25, 1.0]})
    with pytest.raises(DataError, match="one of each a step"):
        steps_of([two], None)


def test_a_step_of_the_optimizer_counts_trajectories_and_keeps_each_whole() -> None:
    names = [f"t{i // 5 * 2 + (i % 5) // 3}" for i in range(40)]  # 16 trajectories of 3 and 2 samples
    limits = ScheduleLimits(max_tokens=100, global_batch_size=16)
    one = build_schedule([10] * 40, [5] * 40, limits, trajectories=names)
    assert [len(step.samples) for step in one.steps] == [40]
    halves = build_schedule([10] * 40, [5] * 40, ScheduleLimits(global_batch_size=8), trajectories=names)
    assert [step.samples for step in halves.steps] == [tuple(range(20)), tuple(range(20, 40))]


def test_surplus_is_counted_in_trajectories_too() -> None:
    names = ["a", "a", "b", "c", "c", "c", "b"]
    limits = ScheduleLimits(global_batch_size=2, trim=True)
    found = build_schedule([1] * 7, [1] * 7, limits, trajectories=names)
    assert [step.samples for step in found.steps] == [(0, 1, 2, 6)]
    assert found.dropped == dict.fromkeys((3, 4, 5), SURPLUS)
