from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.store.rights import Asker
from openclaw.store.rows import pack_floats, pack_ids, pack_json, unpack_floats, unpack_ids, unpack_json
from openclaw.types import NewTurn, TurnState

MakeTurn = Callable[..., NewTurn]


def test_a_turn_round_trips(store: RolloutStore, make_turn: MakeTurn) -> None:
    new = make_turn(tools=[{"type": "function", "function": {"name": "read"}}], person="ann", parent_id="p")
    recorded = store.turns.record(new)
    assert store.turns.get(new.id) == recorded
    assert store.turns.get_by_completion(new.completion_id) == recorded
    assert {name: getattr(recorded, name) for name in vars(new)} == vars(new) | {"turn_index": 0}


@settings(deadline=None)
@given(st.lists(st.floats(max_value=0.0, allow_nan=False)))
def test_log_probs_round_trip_exactly(values: list[float]) -> None:
    from_engine = orjson.loads(orjson.dumps([value for value in values if value > float("-inf")]))
    assert unpack_floats(pack_floats(from_engine)) == from_engine


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_ids_round_trip(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists))
def test_json_round_trips_short_and_compressed(value: object) -> None:
    for kept in (value, [value, "long " * 100]):
        assert unpack_json(pack_json(kept)) == kept


@pytest.mark.every_database
def test_the_same_completion_is_stored_once(store: RolloutStore, make_turn: MakeTurn) -> None:
    new = make_turn()
    first = store.turns.record(new)
    again = store.turns.record(make_turn(completion_id=new.completion_id))
    assert again == first
    assert store.status.counts()["turns"] == {"captured": 1}


@pytest.mark.every_database
def test_a_long_history_is_stored_compactly(store: RolloutStore, make_turn: MakeTurn) -> None:
    history = [{"role": "user", "content": "The same words come again and again. " * 1600}]
    turn = store.turns.record(make_turn(messages=history))
    with store.database.reading() as connection:
        size = connection.exec_driver_sql("SELECT length(messages) FROM turn_body").scalar_one()
    assert size < 5_000
    stored = store.turns.get(turn.id)
    assert stored is not None and stored.messages == history


@pytest.mark.parametrize("state", [TurnState.ANSWERED, TurnState.JUDGED, TurnState.EXPIRED])
def test_a_turn_cannot_be_created_in_a_later_state(
    store: RolloutStore, make_turn: MakeTurn, state: TurnState
) -> None:
    with pytest.raises(StoreError, match=f"cannot be {state}"):
        store.turns.record(make_turn(state=state))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": TurnState.UNTRAINABLE}, "needs a state_reason"),
        ({"completion_log_probs": [-0.5]}, "1 log-probs for 2 completion ids"),
        ({"version_spans": [(0, 0, 1)]}, "do not cover 2 completion ids"),
        ({"version_spans": [(0, 0, 2), (1, 1, 2)]}, "do not cover 2 completion ids"),
        (
            {"completion_ids": [], "completion_log_probs": [], "version_spans": []},
            "needs prompt and completion",
        ),
    ],
)
def test_an_inconsistent_turn_is_rejected(
    store: RolloutStore, make_turn: MakeTurn, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        store.turns.record(make_turn(**changes))
    assert store.status.counts()["turns"] == {}


def test_an_aborted_turn_may_lack_log_probs(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn(state=TurnState.ABORTED, completion_log_probs=[], version_spans=[]))
    assert turn.state is TurnState.ABORTED


@pytest.mark.every_database
def test_the_parent_is_the_turn_with_the_longest_known_prefix(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    store.turns.record(make_turn(transcript_digest="short"))
    longest = store.turns.record(make_turn(transcript_digest="long"))
    found = store.turns.find_by_digest(["unknown"] * 600 + ["long", "short"])
    assert found == longest
    assert store.turns.find_by_digest(["unknown"]) is None


def test_of_two_turns_with_one_transcript_the_newer_is_the_parent(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    store.turns.record(make_turn(transcript_digest="d", created_at=100.0))
    newer = store.turns.record(make_turn(transcript_digest="d", created_at=200.0))
    assert store.turns.find_by_digest(["d"]) == newer


@pytest.mark.every_database
def test_the_parent_is_found_after_many_equal_turns_of_others(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    mine = store.turns.record(make_turn(transcript_digest="d", session_id="mine", key_name="ann"))
    for number in range(25):
        store.turns.record(make_turn(transcript_digest="d", session_id=f"s{number}", key_name="bob"))
    assert store.turns.find_by_digest(["d"], "mine") == mine
    assert store.turns.find_by_digest(["?", "d"], asker=Asker("ann", "ann")) == mine
    assert store.turns.find_by_digest(["d"], asker=Asker("ann", "ann")) == mine
    assert store.turns.find_by_digest(["d"], asker=Asker("eve", "eve")) is None


def test_the_parent_search_stays_within_session_and_time(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn(session_id="a", transcript_digest="d", created_at=100.0))
    assert store.turns.find_by_digest(["d"], session_id="a") == turn
    assert store.turns.find_by_digest(["d"], session_id="b") is None
    assert store.turns.find_by_digest(["d"], since=101.0) is None


@pytest.mark.every_database
def test_a_turn_is_answered_once(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    assert store.turns.answer(turn.id, [{"role": "user", "content": "Thanks"}])
    assert not store.turns.answer(turn.id, [{"role": "user", "content": "No!"}])
    stored = store.turns.get(turn.id)
    assert stored is not None and stored.state is TurnState.ANSWERED and stored.answered_at is not None
    assert stored.next_state == [{"role": "user", "content": "Thanks"}]


@pytest.mark.parametrize("state", [TurnState.SIDE, TurnState.ABORTED, TurnState.UNTRAINABLE])
def test_a_turn_in_another_state_accepts_no_answer(
    store: RolloutStore, make_turn: MakeTurn, state: TurnState
) -> None:
    turn = store.turns.record(make_turn(state=state, state_reason="test"))
    assert not store.turns.answer(turn.id, [])
    stored = store.turns.get(turn.id)
    assert stored is not None and stored.state is state


def test_answering_an_unknown_turn_is_an_error(store: RolloutStore) -> None:
    with pytest.raises(StoreError, match="no turn nobody"):
        store.turns.answer("nobody", [])


@pytest.mark.every_database
def test_turns_of_a_session_are_numbered(store: RolloutStore, make_turn: MakeTurn) -> None:
    indexes = [store.turns.record(make_turn(session_id="a")).turn_index for _ in range(3)]
    assert indexes == [0, 1, 2]
    assert store.turns.next_index("a") == 3
    assert store.turns.next_index("b") == 0
    session = store.sessions.get("a")
    assert session is not None and session.turns == 3


def test_ending_a_session_expires_turns_without_a_next_state(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    answered = store.turns.record(make_turn(session_id="a"))
    store.turns.answer(answered.id, [{"role": "user", "content": "Thanks"}])
    last = store.turns.record(make_turn(session_id="a"))
    other = store.turns.record(make_turn(session_id="b"))
    assert store.sessions.end("a") == 1
    states = {turn.id: turn.state for turn in map(store.turns.get, [answered.id, last.id, other.id]) if turn}
    assert states == {
        answered.id: TurnState.ANSWERED,
        last.id: TurnState.EXPIRED,
        other.id: TurnState.CAPTURED,
    }
    assert not store.turns.answer(last.id, [])
    assert store.status.counts()["dropped"] == {"session_done": 1}


@pytest.mark.every_database
def test_only_idle_sessions_expire_and_a_new_turn_reopens_one(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    store.turns.record(make_turn(session_id="idle"))
    time.sleep(0.6)
    store.turns.record(make_turn(session_id="busy"))
    assert store.sessions.expire(ttl=0.5) == 1
    assert store.sessions.expire(ttl=0.5) == 0
    idle, busy = store.sessions.get("idle"), store.sessions.get("busy")
    assert idle is not None and idle.ended_at is not None
    assert busy is not None and busy.ended_at is None
    store.sessions.touch("idle", person="ann")
    again = store.sessions.get("idle")
    assert again is not None and again.ended_at is None and again.person == "ann"


def test_counts_are_given_by_state_and_reason(store: RolloutStore, make_turn: MakeTurn) -> None:
    store.turns.record(make_turn())
    store.turns.record(make_turn(state=TurnState.SIDE))
    store.turns.record(make_turn(state=TurnState.UNTRAINABLE, state_reason="greedy"))
    store.turns.record(make_turn(state=TurnState.ABORTED))
    assert store.status.counts() == {
        "turns": {"captured": 1, "side": 1, "untrainable": 1, "aborted": 1},
        "samples": {},
        "dropped": {"greedy": 1, "aborted": 1},
        "judge_failures": {},
    }


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
@pytest.mark.every_database
def test_any_text_is_stored_as_data(store: RolloutStore, make_turn: MakeTurn, text: str) -> None:
    session = f"'; DROP TABLE turn; -- {text}".replace("\x00", "")
    turn = store.turns.record(
        make_turn(completion_id=f"c-{time.monotonic_ns()}", session_id=session, messages=[{"content": text}])
    )
    stored = store.turns.get(turn.id)
    assert stored is not None and stored.session_id == session and stored.messages == [{"content": text}]


def test_a_created_store_folder_is_accessible_only_to_its_owner(tmp_path: Path) -> None:
    RolloutStore(tmp_path / "new" / "buffer").close()
    assert stat.S_IMODE((tmp_path / "new" / "buffer").stat().st_mode) == 0o700


def test_the_files_of_a_store_are_private_in_a_folder_that_others_can_read(
    tmp_path: Path, make_turn: MakeTurn
) -> None:
    tmp_path.chmod(0o755)
    store = RolloutStore(tmp_path)
    store.turns.record(make_turn())
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("buffer.db*")}
    store.close()
    assert modes == {"buffer.db": 0o600, "buffer.db-wal": 0o600, "buffer.db-shm": 0o600}


def test_consecutive_readers_share_one_connection(tmp_path: Path, make_turn: Callable[..., NewTurn]) -> None:
    store = RolloutStore(tmp_path)
    turn = store.turns.record(make_turn())
    rush = [store.database.engine.connect() for _ in range(4)]
    for connection in rush:
        connection.close()
    used: set[int] = set()
    event.listen(store.database.engine, "checkout", lambda connection, *_: used.add(id(connection)))
    for _ in range(20):
        assert store.turns.get(turn.id) == turn
    assert len(used) == 1
