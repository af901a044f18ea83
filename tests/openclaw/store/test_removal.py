"""Deletion removes everything, retention only finished turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update

from openclaw.errors import ConfigError
from openclaw.store import RolloutStore, StoreWriter, schema
from openclaw.trainer_hooks import lease, pipeline
from openclaw.types import Judgement, NewTurn, SampleDraft, Turn, TurnState, Vote
from tests.fakes.hook_flags import hook_flags, hook_settings

MakeTurn = Callable[..., NewTurn]
MakeSample = Callable[..., Turn]
DAY = 86400.0


def _rows(store: RolloutStore) -> dict[str, int]:
    with store.database.reading() as connection:
        return {
            table.name: len(connection.execute(table.select()).all())
            for table in schema.metadata.sorted_tables
            if table.name not in ("schema_version", "weight_version")
        }


def _age(store: RolloutStore, days: float) -> None:
    """Makes everything in the store `days` older."""
    seconds = days * DAY
    turn, session = schema.turn, schema.session
    with store.database.transaction() as connection:
        connection.execute(
            update(turn).values(
                created_at=turn.c.created_at - seconds,
                answered_at=turn.c.answered_at - seconds,
                judged_at=turn.c.judged_at - seconds,
            )
        )
        connection.execute(update(session).values(last_seen=session.c.last_seen - seconds))


@pytest.mark.every_database
def test_a_deleted_session_leaves_nothing(
    store: RolloutStore, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    kept = make_sample(session_id="kept")
    make_sample(session_id="gone")
    store.samples.lease(0, 2)
    store.samples.commit_lease(0, version=1)
    store.token_records.keep({"sample": one.id, "turn_id": one.turn.id} for one in store.samples.get([1, 2]))
    make_sample(session_id="gone", drop="neutral_score")
    waiting = store.turns.record(make_turn(session_id="gone"))
    store.feedback.record(completion_id=waiting.completion_id, score=1.0)
    assert store.deletion.delete_session("gone") == {
        "sessions": 1,
        "turns": 3,
        "judgements": 2,
        "feedback": 1,
        "samples": 2,
        "trainings": 1,
    }
    assert _rows(store) == {
        "session": 1,
        "turn": 1,
        "turn_body": 1,
        "picture": 0,
        "turn_picture": 0,
        "judgement": 1,
        "memory": 0,
        "dream": 0,
        "feedback": 0,
        "sample": 1,
        "token_record": 1,
        "training": 1,
    }
    sample = store.samples.of_turn(kept.id)
    assert sample is not None and sample.trained_version == 1
    assert set(store.deletion.delete_session("gone").values()) == {0}


def test_a_deleted_person_leaves_nothing_in_any_session(
    store: RolloutStore, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    make_sample(session_id="a1", person="ann")
    store.turns.record(make_turn(session_id="a1", person=None))
    store.turns.record(make_turn(session_id="shared", person="ann"))
    store.turns.record(make_turn(session_id="shared", person="bob"))
    removed = store.deletion.delete_person("ann")
    assert (removed["sessions"], removed["turns"], removed["samples"]) == (1, 3, 1)
    session = store.sessions.get("shared")
    assert session is not None and (session.turns, session.person) == (1, "bob")
    assert store.sessions.get("a1") is None


@pytest.mark.every_database
def test_a_judgement_of_a_deleted_turn_changes_nothing(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = store.turns.record(make_turn())
    store.turns.answer(turn.id, [])
    store.judgements.claim("w", 1, 60)
    store.deletion.delete_session("s")
    guess = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="j")
    assert not store.judgements.finish(turn.id, [guess], SampleDraft(turn_id=turn.id, reward=1.0))
    store.judgements.release_claim(turn.id)
    assert set(_rows(store).values()) == {0}


@pytest.mark.parametrize("through_writer", [False, True])
def test_deleted_texts_are_no_longer_in_the_files(
    tmp_path: Path, make_turn: MakeTurn, through_writer: bool
) -> None:
    store = RolloutStore(tmp_path)
    secret = "correct horse battery staple"
    store.turns.record(make_turn(messages=[{"role": "user", "content": secret}]))
    files = [tmp_path / "buffer.db", tmp_path / "buffer.db-wal"]
    assert any(secret.encode() in file.read_bytes() for file in files)
    if through_writer:
        writer = StoreWriter(store.database)
        writer.run(lambda: store.deletion.delete_session("s"))
        writer.close()
    else:
        store.deletion.delete_session("s")
    assert not any(secret.encode() in file.read_bytes() for file in files if file.exists())
    store.close()


def test_no_copy_of_a_moved_row_stays_in_a_database_page(tmp_path: Path, make_turn: MakeTurn) -> None:
    """SQLite clears a deleted row, but not the copy that stayed in a page when the row was moved."""
    store, rng = RolloutStore(tmp_path), random.Random(5)
    turns: list[Turn] = []
    with store.database.transaction():
        for _ in range(240):
            person = rng.choice(["ada", "bob"])
            said = [{"role": "user", "content": f"{person}-bluewhale"}]
            answer = "".join(rng.choice("abcdefgh") for _ in range(rng.choice([10, 300, 1500])))
            message = {"role": "assistant", "content": answer}
            new = make_turn(person=person, session_id=person, messages=said, response_message=message)
            turns.append(store.turns.record(new))
            answered = rng.choice(turns)
            store.turns.answer(answered.id, [{"role": "user", "content": f"{answered.person}-bluewhale xxx"}])
    store.deletion.delete_person("ada")
    files = [file.read_bytes() for file in tmp_path.iterdir()]
    assert sum(file.count(b"bob-bluewhale") for file in files) > 100
    assert sum(file.count(b"ada-bluewhale") for file in files) == 0
    store.close()


@pytest.mark.every_database
def test_retention_deletes_old_finished_turns(
    store: RolloutStore, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    make_sample(session_id="trained")
    store.samples.lease(0, 1)
    store.samples.commit_lease(0, version=1)
    make_sample(session_id="dropped", drop="neutral_score")
    store.turns.record(make_turn(session_id="side", state=TurnState.SIDE))
    store.turns.record(make_turn(session_id="expired"))
    store.sessions.end("expired")
    for session in ("trained", "dropped", "side"):
        store.sessions.end(session)
    _age(store, 8)
    make_sample(session_id="young", drop="neutral_score")
    assert store.deletion.purge(30)["turns"] == 0
    removed = store.deletion.purge(7)
    assert (removed["turns"], removed["sessions"], removed["samples"]) == (4, 4, 2)
    assert store.status.counts() == {
        "turns": {"judged": 1},
        "samples": {"dropped": 1},
        "dropped": {"neutral_score": 1},
        "judge_failures": {},
    }


def test_retention_keeps_samples_that_may_still_be_trained(
    store: RolloutStore, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    make_sample(session_id="leased")
    store.samples.lease(0, 1)
    make_sample(session_id="ready")
    answered = store.turns.record(make_turn(session_id="answered"))
    store.turns.answer(answered.id, [])
    store.turns.record(make_turn(session_id="captured"))
    _age(store, 1000)
    before = _rows(store)
    assert set(store.deletion.purge(1).values()) == {0}
    assert _rows(store) == before


def test_the_waiting_trainer_purges_old_turns_unless_retention_is_zero(
    location: str, store: RolloutStore, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    store.turns.record(make_turn(state=TurnState.SIDE))
    _age(store, 3)
    make_sample(session_id="ready")
    lease.lease_batch(hook_flags(location, rollout_batch_size=1), 0)
    assert store.status.counts()["turns"] == {"side": 1, "judged": 1}
    lease.lease_batch(hook_flags(location, rollout_batch_size=1, retention_days=2.0), 0)
    assert store.status.counts()["turns"] == {"judged": 1}
    pipeline._made.clear()
    with pytest.raises(ConfigError, match="--retention-days"):
        hook_settings(location, retention_days=-1.0)


def test_many_old_turns_are_deleted_in_short_transactions(
    store: RolloutStore, make_turn: MakeTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw.store.deletion.PURGE_BATCH", 4)
    started = time.time()
    for _ in range(10):
        store.turns.record(make_turn(state=TurnState.SIDE, created_at=started - 3 * DAY))
    assert store.deletion.purge(2)["turns"] == 10
    session = store.sessions.get("s")
    assert session is not None and session.turns == 0
