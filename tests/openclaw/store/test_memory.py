"""Preferences: stored with the judgement, and in prompts until the weights have learned them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw.store import RolloutStore
from openclaw.store.memory import KEPT
from openclaw.types import Drop, Judgement, NewTurn, Turn, Vote

pytestmark = pytest.mark.every_database
Complain = Callable[..., Turn]


@pytest.fixture
def complain(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> Complain:
    """Creates a turn for which the judge has found these hints."""

    def make(*hints: str, person: str | None = "ada", **changes: object) -> Turn:
        turn = store.turns.record(make_turn(person=person, **({"memory": []} | changes)))
        store.turns.answer(turn.id, [{"role": "user", "content": "no"}])
        votes = [Vote(score=1, hint=hint) for hint in hints]
        hinted = 1.0 if hints else -1.0
        found = [Judgement(kind="hint", score=hinted, votes=votes, judge="test", hints=list(hints))]
        assert store.judgements.finish(turn.id, found, Drop("test"))
        return turn

    return make


def texts(store: RolloutStore, person: str = "ada") -> list[str]:
    return [wish.text for wish in store.memory.remembered(person)]


def test_a_turns_longest_hint_is_remembered_only_for_its_person(
    store: RolloutStore, complain: Complain
) -> None:
    complain("shorter", "shorter, please")
    complain(person=None)
    complain("never", person=None)
    complain("not allowed", memory=None)
    assert texts(store) == ["shorter, please"] and texts(store, "bob") == []
    assert len(store.memory.wishes()) == 1


def test_the_newest_preferences_are_in_prompts_and_a_repeated_one_is_the_newest(
    store: RolloutStore, complain: Complain
) -> None:
    for number in range(KEPT + 1):
        complain(f"wish {number}")
    assert texts(store) == [f"wish {number}" for number in range(1, KEPT + 1)]
    complain("wish 2")
    assert texts(store)[-1] == "wish 2" and len(store.memory.wishes("ada")) == KEPT + 1


def test_a_learned_preference_leaves_the_prompts_and_returns_after_a_rollback_or_complaint(
    store: RolloutStore, complain: Complain
) -> None:
    complain("shorter")
    store.versions.weights_live(-1, 0, None, True, None, None)
    store.versions.weights_live(0, 1, 0, False, None, None)
    (wish,) = store.memory.remembered("ada")
    assert store.memory.hold(wish.id, 1, {"asked": 20, "shown": 20})
    assert texts(store) == []
    (held,) = store.memory.wishes("ada")
    assert (held.held_by, held.in_prompt, held.details) == (1, False, {"asked": 20, "shown": 20})
    store.versions.weights_live(1, 2, 1, False, None, None)
    assert texts(store) == []
    store.versions.weights_live(0, 3, 0, True, None, None)
    assert texts(store) == ["shorter"]
    store.memory.hold(wish.id, 3, {})
    complain("shorter")
    assert texts(store) == ["shorter"] and len(store.memory.wishes("ada")) == 1


def test_deleting_a_turn_deletes_its_preference(store: RolloutStore, complain: Complain) -> None:
    complain("shorter", session_id="gone")
    complain("longer", session_id="kept")
    store.deletion.delete_session("gone")
    assert texts(store) == ["longer"]
    (wish,) = store.memory.remembered("ada")
    assert (
        not store.memory.forget(wish.id, "bob")
        and store.memory.forget(wish.id, "ada")
        and not store.memory.forget(wish.id)
    )
    assert not store.memory.hold(wish.id, 1, {})


def test_a_turn_records_the_preferences_in_its_prompt(
    store: RolloutStore, make_turn: Callable[..., NewTurn]
) -> None:
    for memory in (None, [], ["shorter"]):
        turn = store.turns.record(make_turn(memory=memory))
        kept = store.turns.get(turn.id)
        assert kept is not None and kept.memory == memory


def test_the_latest_requests_up_to_a_judgement_are_found_with_and_without_memory(
    store: RolloutStore, complain: Complain
) -> None:
    complain("prose", memory=None)
    complain("warm", "warmer, please", person="bob", memory=None)
    until = complain("shorter", memory=None)
    complain(memory=None)
    complain("too new", person="eve", memory=None)
    assert store.memory.asked_for([until.id], people=4, each=2) == {
        "bob": ["warmer, please"],
        "ada": ["prose", "shorter"],
    }
    assert store.memory.asked_for([until.id], people=1, each=1) == {"ada": ["shorter"]}
    complain("of nobody", person=None, memory=None)
    last = complain("shorter", memory=None)
    assert list(store.memory.asked_for([last.id, until.id], people=9, each=1)) == ["bob", "eve", None, "ada"]


def test_a_hint_that_repeats_its_own_request_is_not_remembered(
    store: RolloutStore, complain: Complain
) -> None:
    asked = [{"role": "user", "content": "What is 2 + 2? Answer with bullet points."}]
    first = complain("I asked for a list.", messages=asked)
    complain("A numbered list!", messages=[*asked, {"role": "user", "content": "no"}], parent_id=first.id)
    complain("Be warm and friendly, please.", "I asked for bullets!", messages=asked)
    assert texts(store) == ["Be warm and friendly, please."]


def test_the_request_before_complaints_is_found(store: RolloutStore, complain: Complain) -> None:
    said = [{"role": "user", "content": "What is 2 + 2?"}]
    first = complain("shorter", messages=said)
    said = [*said, {"role": "user", "content": "shorter, and now 3 + 3"}]
    second = complain(messages=said, parent_id=first.id)
    said = [*said, {"role": "user", "content": "Thanks! And 4 + 4?"}]
    third = complain(messages=said, parent_id=second.id)
    assert [store.memory.request_of(turn.id) for turn in (first, second)] == ["What is 2 + 2?"] * 2
    assert store.memory.request_of(third.id) == "Thanks! And 4 + 4?" and store.memory.request_of("gone") == ""
    system = complain("x", messages=[{"role": "system", "content": "a list"}])
    assert store.memory.request_of(system.id) == ""


def test_after_too_many_complaints_no_request_is_found(store: RolloutStore, complain: Complain) -> None:
    turns = [complain("no", messages=[{"role": "user", "content": "question"}])]
    for _ in range(9):
        said = [{"role": "user", "content": "no"}]
        turns.append(complain("no", messages=said, parent_id=turns[-1].id))
    assert [store.memory.request_of(turn.id) for turn in turns[7:]] == ["question", "question", ""]
