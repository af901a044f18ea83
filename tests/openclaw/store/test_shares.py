"""The limit of one person's share of training if several people give feedback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openclaw.store import RolloutStore
from openclaw.store.shares import bounded

MakeSample = Callable[..., Any]


def of(*people: str | None) -> list[tuple[int, str | None]]:
    return list(enumerate(people, 1))


def test_a_single_person_is_not_limited() -> None:
    assert bounded(of(*["ada"] * 6), {"ada": 500}, 4, 0.5) == [1, 2, 3, 4]
    assert bounded(of(*[None] * 6), {None: 500}, 4, 0.5) == [1, 2, 3, 4]
    passer_by = bounded(of(*["ada"] * 6), {"ada": 500, "bob": 3}, 4, 0.5)
    assert passer_by == [1, 2, 3, 4], "who said a few words is no company"


def test_one_of_several_people_is_limited_to_a_share_of_the_hour_plus_one_batch() -> None:
    ready = of("liar", "liar", "liar", "ada", "liar", "ada")
    assert bounded(ready, {"liar": 8, "ada": 8}, 4, 0.5) == [1, 2, 4, 6]
    assert bounded(ready, {"liar": 12, "ada": 8}, 4, 0.5) == [4, 6], (
        "the liar's wait, and the batch is smaller"
    )
    assert bounded(ready, {"liar": 12, "ada": 8}, 4, 1.0) == [1, 2, 3, 4]


def test_one_persons_flood_of_samples_is_limited_by_others_rate() -> None:
    learned: dict[str | None, int] = {"liar": 4, "ada": 4}
    for hour_goes_on in range(20):
        ready = of(*["liar"] * 50, *(["ada"] if hour_goes_on % 2 else []))
        for sample in bounded(ready, learned, 4, 0.75):
            person = ready[sample - 1][1]
            learned[person] = learned.get(person, 0) + 1
    total = sum(learned.values())
    assert learned["ada"] == 13 and learned["liar"] <= 0.75 * (total + 4)


def test_a_batch_leaves_one_persons_surplus_for_later(store: RolloutStore, make_sample: MakeSample) -> None:
    for person in ["liar"] * 12 + ["ada"] * 4:
        make_sample(person=person)
    assert store.samples.leasable_count(4, share=0.5) == 4
    counts = []
    for rollout in range(4):
        people = [one.turn.person for one in store.samples.lease(rollout, 4, share=0.5)]
        counts.append((people.count("liar"), people.count("ada")))
        store.versions.weights_live(rollout, rollout + 1, rollout or None, False, None, None)
    assert counts == [(2, 2), (2, 2), (2, 0), (1, 0)], "up to half of the hour, and of a batch more"
    assert store.samples.leasable_count(4, share=0.5) == 0 and store.samples.ready_count() == 5
    assert len(store.samples.lease(9, 4)) == 4, "without a bound they go"
