"""Access to stored data: as a function, and as a query condition."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from openclaw.store import RolloutStore
from openclaw.store.rights import ADMINISTRATOR, NAMELESS, Asker, asker_of, may_use
from openclaw.types import NewTurn

NAMES = frozenset({"ada", "bob"})


@pytest.mark.parametrize(
    ("key", "user", "names", "asker"),
    [
        ("ada", None, NAMES, Asker("ada", "ada", names=True)),
        ("ada", "ada", NAMES, Asker("ada", "ada", names=True)),
        ("ada", "carol", NAMES, Asker("ada", "carol", names=True)),
        ("ada", "bob", NAMES, Asker("ada", "ada", names=True, claims=True)),
        (None, None, NAMES, Asker("", None, names=True)),
        (None, "carol", NAMES, Asker("", "carol", names=True)),
        (None, "bob", NAMES, Asker("", None, names=True, claims=True)),
        (None, None, frozenset(), NAMELESS),
        (None, "ada", frozenset(), Asker("", "ada")),
    ],
)
def test_a_keys_name_can_be_used_only_with_that_key(
    key: str | None, user: str | None, names: frozenset[str], asker: Asker
) -> None:
    assert asker_of(key, user, names) == asker


@pytest.mark.parametrize(
    ("asker", "key", "person", "may"),
    [
        (ADMINISTRATOR, "ada", "ada", True),
        (Asker("bob", "ada", names=True), "ada", "ada", False),
        (Asker("ada", "ada", names=True), "ada", "carol", False),
        (Asker("ada", "carol", names=True), "ada", None, True),
        (Asker("", None, names=True), "", "carol", False),
        (Asker("", None), "", "carol", True),
        (Asker("", None), "ada", "ada", False),
        (Asker("ada", "ada", names=True), None, None, True),
        (Asker("bob", "bob", names=True), None, "ada", False),
    ],
)
def test_a_key_restricts_access_and_a_person_only_labels(
    asker: Asker, key: str | None, person: str | None, may: bool
) -> None:
    assert may_use(asker, key, person) == may


@pytest.mark.every_database
def test_a_query_returns_the_rows_that_the_access_rule_allows(
    store: RolloutStore, make_turn: Callable[..., NewTurn]
) -> None:
    keys, people = (None, "", "ada", "bob"), (None, "ada", "bob", "carol")
    turns = [
        store.turns.record(make_turn(key_name=key, person=person, session_id=f"{key} {person}"))
        for key, person in itertools.product(keys, people)
    ]
    for key, person, names in itertools.product(keys, people, (False, True)):
        asker = Asker(key, person, names)
        for turn in turns:
            found = store.status.of_completion(turn.completion_id, asker)
            assert (found is not None) == may_use(asker, turn.key_name, turn.person), (asker, turn)


@pytest.mark.every_database
def test_a_session_belongs_to_the_key_that_started_it(
    store: RolloutStore, make_turn: Callable[..., NewTurn]
) -> None:
    def owner() -> tuple[str | None, str | None]:
        session = store.sessions.get("s")
        assert session is not None
        return session.key_name, session.person

    store.turns.record(make_turn(key_name=""))
    store.turns.record(make_turn(key_name="bob", person="bob"))
    assert owner() == ("", None)
    store.turns.record(make_turn(key_name="", person="carol"))
    store.turns.record(make_turn(key_name="", person="dave"))
    assert owner() == ("", "carol")
    assert [one["id"] for one in store.sessions.listing("dave")] == ["s"]
    assert "key_name" not in store.sessions.listing()[0]


@pytest.mark.every_database
def test_ending_a_shared_session_ends_only_the_callers_turns(
    store: RolloutStore, make_turn: Callable[..., NewTurn]
) -> None:
    ada, bob = (Asker(name, name, names=True) for name in ("ada", "bob"))
    mine = store.turns.record(make_turn(key_name="ada", person="ada"))
    other = store.turns.record(make_turn(key_name="bob", person="bob"))
    assert store.sessions.end("s", bob) == 1
    states = {one.id: str(one.state) for one in store.turns.get_many([mine.id, other.id]).values()}
    assert states == {mine.id: "captured", other.id: "expired"}
    session = store.sessions.get("s")
    assert session is not None and session.ended_at is None
    store.deletion.delete_person("bob")
    assert store.sessions.end("s", ada) == 1
    session = store.sessions.get("s")
    assert session is not None and session.ended_at is not None
