"""Dreams are stored with their rollout, and deleted with the turns of their preference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream
from openclaw.types import NewTurn, Turn

pytestmark = pytest.mark.every_database
ANCHOR = Dream(
    kind="anchor", item="w1-p1", theme="length", prompt_ids=[1, 2], taught_ids=[1, 2], completion_ids=[3], version=0
)  # fmt: skip


def dream_of(*turns: Turn, wish: str = "shorter") -> Dream:
    return Dream(
        kind="dream",
        item="p1",
        prompt_ids=[1, 2],
        taught_ids=[1, 2, 5],
        completion_ids=[3, 4],
        gain=1.5,
        version=2,
        person=turns[0].person,
        wish=wish,
        turn_ids=tuple(turn.id for turn in turns),
    )


@pytest.fixture
def recorded(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> Callable[..., Turn]:
    def record(person: str | None = "ann", session: str = "s") -> Turn:
        return store.turns.record(make_turn(person=person, session_id=session))

    return record


def test_a_dream_round_trips_for_its_trainer_model_person_and_preference(
    store: RolloutStore, recorded: Callable[..., Turn]
) -> None:
    turn, nameless = recorded(), recorded(None)
    mine, theirs = dream_of(turn), dream_of(nameless)
    assert store.dreams.keep("trainer", "m", 3, [mine, theirs, ANCHOR]) == 3
    (found,) = store.dreams.of_wish("trainer", "m", "ann", "shorter", 3)
    assert found == replace(mine, rollout_id=3, id=found.id)
    (of_nameless,) = store.dreams.of_wish("trainer", "m", None, "shorter", 3)
    assert of_nameless.turn_ids == (nameless.id,)
    (anchor,) = store.dreams.known("trainer", "m", "anchor", 3)
    assert anchor == replace(ANCHOR, rollout_id=3, id=anchor.id)
    for trainer, model, wish in [
        ("other", "m", "shorter"),
        ("trainer", "n", "shorter"),
        ("trainer", "m", "longer"),
    ]:
        assert store.dreams.of_wish(trainer, model, "ann", wish, 3) == []
    assert store.dreams.wishes_of("trainer", "m", "ann", 4) == ["shorter"]
    assert store.dreams.wishes_of("trainer", "m", "ann", 3) == []


def test_an_earlier_rollout_gets_no_later_dreams(store: RolloutStore, recorded: Callable[..., Turn]) -> None:
    turn = recorded()
    store.dreams.keep("trainer", "m", 1, [dream_of(turn), ANCHOR])
    store.dreams.keep("trainer", "m", 2, [dream_of(turn), ANCHOR])
    assert [len(store.dreams.of_wish("trainer", "m", "ann", "shorter", at)) for at in (0, 1, 2)] == [0, 1, 2]
    assert [len(store.dreams.known("trainer", "m", "anchor", at)) for at in (0, 1, 2)] == [0, 1, 2]
    assert [store.dreams.was_sampled("trainer", "m", at) for at in (0, 1, 2, 3)] == [False, True, True, False]


def test_deleting_a_person_or_session_deletes_its_dreams_but_not_the_anchors(
    store: RolloutStore, recorded: Callable[..., Turn]
) -> None:
    first, second, other = recorded(), recorded(session="t"), recorded("bob")
    both, late = dream_of(first, second, wish="shorter\nno list"), dream_of(second)
    store.dreams.keep("trainer", "m", 0, [both, late, dream_of(other), ANCHOR])
    store.deletion.delete_session("t")
    assert store.dreams.wishes_of("trainer", "m", "ann", 1) == []
    store.dreams.keep("trainer", "m", 1, [dream_of(first), late])
    assert len(store.dreams.of_wish("trainer", "m", "ann", "shorter", 1)) == 1
    store.deletion.delete_person("ann")
    assert store.dreams.wishes_of("trainer", "m", "ann", 2) == []
    assert len(store.dreams.of_wish("trainer", "m", "bob", "shorter", 1)) == 1
    assert len(store.dreams.known("trainer", "m", "anchor", 1)) == 1
