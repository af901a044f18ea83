from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime.training.prefixes import KEYS, Prefixes
from slime.training.schedule import (
    NOTHING_TO_TRAIN,
    SURPLUS,
    MicroBatch,
    ScheduleLimits,
    Step,
    build_schedule,
)

sizes = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 3)), max_size=40)
limits = st.builds(
    ScheduleLimits,
    world_size=st.integers(1, 5),
    max_tokens=st.none() | st.integers(1, 200),
    micro_batch_size=st.integers(1, 6),
    global_batch_size=st.none() | st.integers(1, 12),
    trim=st.booleans(),
    balance=st.booleans(),
)


@given(sizes, limits)
def test_every_sample_is_trained_once_or_dropped_with_a_reason(
    samples: list[tuple[int, int]], limits: ScheduleLimits
) -> None:
    schedule = plan(samples, limits)
    seen = [i for step in schedule.steps for i in step.samples]
    assert sorted(seen + list(schedule.dropped)) == list(range(len(samples)))
    for i, reason in schedule.dropped.items():
        assert reason == (NOTHING_TO_TRAIN if samples[i][1] == 0 else SURPLUS)


@given(sizes, limits)
def test_every_rank_has_the_same_number_of_micro_batches(
    samples: list[tuple[int, int]], limits: ScheduleLimits
) -> None:
    for step in plan(samples, limits).steps:
        assert len(step.ranks) == limits.world_size
        assert len({len(rank) for rank in step.ranks}) == 1
        assert all(step.ranks)


@given(sizes, limits)
def test_only_a_single_long_sample_may_exceed_the_token_budget(
    samples: list[tuple[int, int]], limits: ScheduleLimits
) -> None:
    for step in plan(samples, limits).steps:
        for micro_batch in (m for rank in step.ranks for m in rank):
            if limits.max_tokens is None:
                assert len(micro_batch) <= limits.micro_batch_size
            elif len(micro_batch) > 1:
                assert sum(samples[i][0] for i in micro_batch) <= limits.max_tokens


@given(sizes, limits)
def test_steps_have_the_global_batch_size_and_separate_denominators(
    samples: list[tuple[int, int]], limits: ScheduleLimits
) -> None:
    schedule = plan(samples, limits)
    for number, step in enumerate(schedule.steps):
        last = number == len(schedule.steps) - 1
        if limits.global_batch_size is not None:
            assert step.num_samples == limits.global_batch_size or last
            assert step.num_samples <= limits.global_batch_size
        assert step.num_samples == len(step.samples)
        assert step.num_tokens == sum(samples[i][1] for i in step.samples)
        if limits.trim and limits.global_batch_size and len(schedule.steps) > 1:
            assert step.num_samples == limits.global_batch_size
    assert bool(schedule.steps) == any(trained for _, trained in samples)


def test_samples_are_dropped_before_trimming() -> None:
    samples = [(5, 0), (5, 1), (5, 1), (5, 0), (5, 1), (5, 1), (5, 1)]
    schedule = plan(samples, ScheduleLimits(global_batch_size=2, trim=True))
    assert [step.samples for step in schedule.steps] == [(1, 2), (4, 5)]
    assert schedule.dropped == {0: NOTHING_TO_TRAIN, 3: NOTHING_TO_TRAIN, 6: SURPLUS}


def test_a_rollout_smaller_than_the_global_batch_is_one_step() -> None:
    schedule = plan([(5, 1)] * 3, ScheduleLimits(global_batch_size=8, trim=True))
    assert [step.num_samples for step in schedule.steps] == [3]


def test_ranks_without_samples_get_an_empty_micro_batch() -> None:
    (step,) = plan([(5, 1)], ScheduleLimits(world_size=3)).steps
    assert step.ranks == (((0,),), ((),), ((),))


def test_short_samples_share_micro_batches() -> None:
    (step,) = plan([(30, 1), (50, 1), (20, 1), (90, 1)], ScheduleLimits(max_tokens=100)).steps
    assert step.ranks == (((3,), (0, 1, 2)),)


def test_balance_spreads_the_tokens_over_the_ranks() -> None:
    samples = [(90, 1), (80, 1), (20, 1), (10, 1)]
    (balanced,) = plan(samples, ScheduleLimits(world_size=2, balance=True)).steps
    (dealt,) = plan(samples, ScheduleLimits(world_size=2)).steps
    assert loads(balanced, samples) == [100, 100]
    assert loads(dealt, samples) == [110, 90]


@pytest.mark.parametrize("name", ["world_size", "max_tokens", "micro_batch_size", "global_batch_size"])
def test_limits_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        plan([(1, 1)], ScheduleLimits(**{name: 0}))


def test_companions_are_a_separate_step_after_their_samples() -> None:
    lengths, trained = [5] * 6, [1, 3, 1, 1, 3, 1]
    schedule = build_schedule(lengths, trained, ScheduleLimits(global_batch_size=2), companions={1: 1, 4: 1})
    assert [step.samples for step in schedule.steps] == [(0, 2), (1,), (3, 5), (4,)]
    assert [(step.num_samples, step.num_tokens) for step in schedule.steps] == [
        (2, 2),
        (1, 3),
        (2, 2),
        (1, 3),
    ]


def test_companions_of_each_number_form_a_step_in_numeric_order() -> None:
    schedule = build_schedule([5] * 6, [1] * 6, ScheduleLimits(), companions={2: 2, 3: 1, 4: 2, 5: 3})
    assert [step.samples for step in schedule.steps] == [(0, 1), (3,), (2, 4), (5,)]


def test_companions_of_a_trimmed_sample_are_trimmed_too() -> None:
    limits = ScheduleLimits(global_batch_size=2, trim=True)
    schedule = build_schedule([5] * 4, [1] * 4, limits, companions={3: 1})
    assert [step.samples for step in schedule.steps] == [(0, 1)]
    assert schedule.dropped == {2: SURPLUS, 3: SURPLUS}


@given(sizes, limits, st.lists(st.sampled_from([None, "a", "b"]), min_size=40, max_size=40))
def test_micro_batches_of_one_number_hold_samples_of_one_kind_on_all_ranks(
    samples: list[tuple[int, int]], limits: ScheduleLimits, kinds: list[str | None]
) -> None:
    kind_of = {i: kinds[i] for i in range(len(samples)) if kinds[i] is not None}
    schedule = plan(samples, limits, kind_of)
    for step in schedule.steps:
        for rank in step.ranks:
            assert len(rank) == len(step.kinds)
            for micro_batch, kind in zip(rank, step.kinds, strict=True):
                assert {kind_of.get(i) for i in micro_batch} <= {kind}
        assert list(step.kinds) == sorted(step.kinds, key=lambda kind: kind is not None)
        of_others = {i for i in step.samples if i in kind_of}
        plain = {i for rank in range(limits.world_size) for part in step.plain(rank) for i in part}
        assert plain == set(step.samples) - of_others
        assert {i for rank in step.ranks for n in step.others() for i in rank[n]} == of_others
    alike = plan(samples, limits)
    assert [(step.samples, step.num_tokens) for step in schedule.steps] == [
        (step.samples, step.num_tokens) for step in alike.steps
    ]
    assert schedule.dropped == alike.dropped


def test_the_kinds_of_a_step_are_scheduled_separately() -> None:
    limits = ScheduleLimits(world_size=2, micro_batch_size=2)
    (step,) = build_schedule([5] * 5, [1] * 5, limits, kinds={1: "forward", 3: "forward", 4: "forward"}).steps
    assert step.ranks == (((0,), (1, 3)), ((2,), (4,)))
    assert (step.kinds, step.others(), step.num_samples) == ((None, "forward"), (1,), 5)


def plan(samples: list[tuple[int, int]], limits: ScheduleLimits, kinds: Any = None) -> Any:
    lengths, trained = [length for length, _ in samples], [trained for _, trained in samples]
    return build_schedule(lengths, trained, limits, kinds=kinds)


def loads(step: Step, samples: list[tuple[int, int]]) -> list[int]:
    return [sum(samples[i][0] for m in rank for i in m) for rank in step.ranks]


def alike(count: int, prompt: int, answer: int) -> list[list[int]]:
    """Returns turns of one session, each with all earlier ones."""
    return [list(range(prompt + answer * (turn + 1))) for turn in range(count)]


def merged(
    sequences: list[list[int]], ranks: int = 1, max_tokens: int = 100, trained: int = 5
) -> tuple[tuple[MicroBatch, ...], ...]:
    lengths, targets = [len(sequence) for sequence in sequences], [trained] * len(sequences)
    limits = ScheduleLimits(world_size=ranks, max_tokens=max_tokens)
    (step,) = build_schedule(lengths, targets, limits, prefixes=Prefixes(sequences, targets)).steps
    return step.ranks


def test_turns_of_a_session_share_a_micro_batch_and_count_once() -> None:
    sequences = [*alike(5, 40, 10), [1000 + i for i in range(90)]]
    assert merged(sequences) == (((0, 1, 2, 3, 4), (5,)),) or merged(sequences) == (((5,), (0, 1, 2, 3, 4)),)


def test_a_session_beyond_the_limit_costs_as_much_as_its_longest_turn() -> None:
    assert merged(alike(5, 200, 10)) == (((0, 1, 2, 3, 4),),)


def test_predicted_tokens_of_a_micro_batch_stay_within_its_limit() -> None:
    same = [list(range(50))] * 6
    assert sorted(map(len, merged(same, trained=30)[0])) == [3, 3]


def test_copied_keys_stay_within_a_multiple_of_the_limit() -> None:
    answers = [[*range(90), 1000 + i] for i in range(12)]
    parts = merged(answers, max_tokens=110)[0]
    assert sorted(i for part in parts for i in part) == list(range(12))
    assert all((len(part) + 1) * 90 + len(part) <= KEYS * 110 for part in parts)


def test_samples_without_common_prefixes_are_scheduled_as_without_sharing() -> None:
    sequences = [[number * 100 + i for i in range(10 + 7 * number % 23)] for number in range(20)]
    lengths = [len(sequence) for sequence in sequences]
    for ranks in (1, 2, 3):
        plain = build_schedule(lengths, [5] * 20, ScheduleLimits(world_size=ranks, max_tokens=60))
        assert merged(sequences, ranks, 60) == plain.steps[0].ranks


def test_ranks_get_equally_many_micro_batches_of_a_session() -> None:
    ranks = merged(alike(7, 40, 5), ranks=2)
    assert [len(rank) for rank in ranks] == [1, 1]
    assert sorted(i for rank in ranks for part in rank for i in part) == list(range(7))


def test_a_long_session_shares_tokens_within_the_target_limit() -> None:
    """The last turn alone has more tokens than the limit; its turns together would have 30 times the targets."""
    turns = [list(range(1000 * number)) for number in range(1, 41)]
    parts = Prefixes(turns, [750] * 40).parts(range(40), 8192)
    assert sorted(i for part in parts for i in part) == list(range(40))
    assert max(map(len, parts)) == 8192 // 750
    assert Prefixes(turns, [9000] * 40).parts(range(40), 8192) == [[i] for i in reversed(range(40))]
