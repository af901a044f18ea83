"""Scores by person, and excluded people whose samples stay ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from openclaw.store import RolloutStore

MakeSample = Callable[..., Any]


@pytest.mark.every_database
def test_the_newest_scores_of_each_person_up_to_a_judgement_are_returned(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    turns = [
        make_sample(score, person=who) for who in ("ada", None, "bob") for score in (1.0, -1.0, 0.0, 1.0)
    ]
    last = store.judgements.newest_number()
    found = store.people.scores_of(["ada", None], last, 2)
    assert [(one.person, one.score) for one in found] == [
        ("ada", -1.0),
        ("ada", 1.0),
        (None, -1.0),
        (None, 1.0),
    ]
    early = store.judgements.newest_number([turn.id for turn in turns[:2]])
    assert [one.score for one in store.people.scores_of(["ada", "bob"], early, 9)] == [1.0, -1.0]
    assert store.judgements.newest_number([]) == 0 and store.people.scores_of([], last, 9) == []
    assert store.turns.get_many([turns[0].id])[turns[0].id].person == "ada"


@pytest.mark.every_database
def test_several_people_count_once_a_second_one_has_given_a_score(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    assert not store.people.several_scored(0)
    make_sample(person="ada")
    make_sample(0.0, person="bob")
    assert not store.people.several_scored(store.judgements.newest_number())
    make_sample(-1.0, person=None)
    last = store.judgements.newest_number()
    assert store.people.several_scored(last) and not store.people.several_scored(last - 1)


@pytest.mark.every_database
@pytest.mark.parametrize("share", [1.0, 0.75])
def test_samples_of_excluded_people_stay_ready(
    store: RolloutStore, make_sample: MakeSample, share: float
) -> None:
    for person in ["liar", "ada", None, "liar", "bob"]:
        make_sample(person=person)
    assert store.people.waiting() == {"liar", "ada", None, "bob"}
    apart = {"liar", None}
    assert (
        store.samples.ready_count(apart) == store.samples.leasable_count(9, share=share, excluded=apart) == 2
    )
    assert [one.turn.person for one in store.samples.lease(0, 9, share=share, excluded=apart)] == [
        "ada",
        "bob",
    ]
    assert store.samples.ready_count() == 3 and store.samples.oldest_ready_at(apart) is None
    assert [one.turn.person for one in store.samples.learned_before(1, 9, excluded={"ada"})] == ["bob"]
    assert [one.turn.person for one in store.samples.lease(1, 9, share=share)] == ["liar", None, "liar"]


def test_excluded_people_do_not_limit_others(store: RolloutStore, make_sample: MakeSample) -> None:
    for person in ["liar"] * 4 + ["ada"] * 12:
        make_sample(person=person)
    store.samples.lease(0, 4)
    assert store.samples.leasable_count(12, share=0.5, excluded={"liar"}) == 12
