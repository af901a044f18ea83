"""A score is compared with the same person's usual scores, so its value does not depend on other people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from openclaw.store import RolloutStore
from openclaw.trainer_hooks import pipeline
from openclaw.trainer_hooks.credit import PRIOR, WINDOW, baseline, compare_with_person
from openclaw.types import Turn
from slime.types import Sample
from tests.fakes.hook_flags import hook_flags

MakeSample = Callable[..., Turn]
Compare = Callable[[list[Turn], list[float]], list[float]]


@pytest.fixture
def compare(location: str, store: RolloutStore) -> Iterator[Compare]:
    args = hook_flags(location)

    def compared(turns: list[Turn], scores: list[float]) -> list[float]:
        samples = [
            Sample(tokens=[1, 2], response_length=1, reward={"score": score}, metadata={"turn_id": turn.id})
            for turn, score in zip(turns, scores, strict=True)
        ]
        before, after = compare_with_person(args, samples)
        assert before == [{"score": score} for score in scores]
        return after

    yield compared
    pipeline._made.clear()


@pytest.mark.every_database
def test_a_first_score_counts_fully_alone_or_with_equal_scores(
    make_sample: MakeSample, compare: Compare
) -> None:
    turns = [make_sample(1.0, person=f"p{number}") for number in range(4)]
    assert compare(turns, [1.0] * 4) == [1.0] * 4
    assert compare(turns[2:3], [1.0]) == [1.0]


def test_a_scores_advantage_does_not_depend_on_its_batch(make_sample: MakeSample, compare: Compare) -> None:
    history = [make_sample(score, person="ada") for score in (1.0, 1.0, -1.0, 1.0)]
    other = make_sample(-1.0, person="bob")
    together = compare([*history, other], [1.0, 1.0, -1.0, 1.0, -1.0])
    alone = [compare([turn], [score])[0] for turn, score in zip(history, (1.0, 1.0, -1.0, 1.0), strict=True)]
    assert together == [*alone, -1.0]
    assert together[:3] == [1.0, 1.0 - baseline([1.0]), -1.0 - baseline([1.0, 1.0])]


def test_constant_scores_count_less_than_changes(make_sample: MakeSample, compare: Compare) -> None:
    turns = [make_sample(1.0, person="ada") for _ in range(WINDOW + 8)]
    last = compare(turns[-1:], [1.0])[0]
    assert last == pytest.approx(1 - WINDOW / (WINDOW + PRIOR))
    assert compare(turns[-1:], [-1.0])[0] == pytest.approx(-1 - WINDOW / (WINDOW + PRIOR))


def test_a_turn_without_a_score_has_advantage_zero_and_does_not_change_the_baseline(
    make_sample: MakeSample, compare: Compare
) -> None:
    turns = [make_sample(0.0, person="ada"), make_sample(1.0, person="ada")]
    assert compare(turns, [0.0, 1.0]) == [0.0, 1.0]


def test_unnamed_people_share_one_baseline(make_sample: MakeSample, compare: Compare) -> None:
    make_sample(1.0)
    assert compare([make_sample(1.0)], [1.0]) == [1.0 - baseline([1.0])]


def test_repeated_complaints_of_a_person_count_less_but_never_zero_and_first_praise_most(
    make_sample: MakeSample, compare: Compare
) -> None:
    turns = [make_sample(-1.0, person="ada") for _ in range(2 * WINDOW)]
    found = [compare([turn], [-1.0])[0] for turn in turns]
    assert found[:3] == pytest.approx([-1.0, -0.8, -2 / 3])
    assert all(after >= before for before, after in pairwise(found))
    assert found[-1] == pytest.approx(-PRIOR / (WINDOW + PRIOR))
    pleased = make_sample(1.0, person="ada")
    assert compare([pleased], [1.0])[0] == pytest.approx(1 + WINDOW / (WINDOW + PRIOR))
