"""Sessions and their turns. Queries are bounded, and use indexes of the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from openclaw.errors import ClientError
from openclaw.store import RolloutStore, schema
from openclaw.store.rows import judgement_from_row, unpack_json
from openclaw.types import SampleState, reason_of
from openclaw.views.texts import new_messages, preview, shown_message

Json = dict[str, Any]

SESSIONS_A_PAGE = 30
TURNS_A_PAGE = 20


def sessions(store: RolloutStore, limit: int = SESSIONS_A_PAGE, before: float | None = None) -> Json:
    """Returns `{"open": [...], "ended": [...], "next": before of the next page or None}`, newest first.

    Open sessions are only on the first page, at most `limit`. `before`: Unix time in seconds; only sessions that ended
    earlier are returned.
    """
    table = schema.session
    ended = select(table).where(table.c.ended_at.is_not(None))
    if before is not None:
        ended = ended.where(table.c.ended_at < before)
    with store.database.reading() as connection:
        rows = connection.execute(ended.order_by(table.c.ended_at.desc()).limit(limit + 1)).mappings().all()
        shown = rows[:limit]
        further = shown[-1]["ended_at"] if len(rows) > limit else None
        return {
            "object": "list",
            "open": open_sessions(store, limit) if before is None else [],
            "ended": _described(connection, shown),
            "next": further,
        }


def open_sessions(store: RolloutStore, limit: int) -> list[Json]:
    """Returns the most recently used open sessions, newest first."""
    table = schema.session
    query = select(table).where(table.c.ended_at.is_(None)).order_by(table.c.last_seen.desc())
    with store.database.reading() as connection:
        return _described(connection, connection.execute(query.limit(limit)).mappings().all())


def session(store: RolloutStore, session_id: str, after: int = -1, limit: int = TURNS_A_PAGE) -> Json:
    """Returns a session with its turns after index `after`, in order. Raises ClientError (404)."""
    table, turn = schema.session, schema.turn
    with store.database.reading() as connection:
        row = connection.execute(select(table).where(table.c.id == session_id)).mappings().first()
        if row is None:
            raise ClientError(f"there is no recorded session {session_id!r}", "session_id", "not_found", 404)
        query = select_turns().where(turn.c.session_id == session_id, turn.c.turn_index > after)
        query = query.order_by(turn.c.turn_index, turn.c.created_at).limit(limit + 1)
        rows = connection.execute(query).mappings().all()
        shown = rows[:limit]
        judged = judgements(connection, [one["id"] for one in shown])
        described = _described(connection, [row])[0]
        turns = [shown_turn(one, judged[one["id"]]) for one in shown]
    further = shown[-1]["turn_index"] if len(rows) > limit else None
    return {"object": "session", **described, "data": turns, "next": further}


def judgements(connection: Connection, turn_ids: Sequence[str]) -> defaultdict[str, list[Json]]:
    """Returns the judgements of each turn, in order: votes, score, reason, hints and judge."""
    table = schema.judgement
    by_turn: defaultdict[str, list[Json]] = defaultdict(list)
    query = select(table).where(table.c.turn_id.in_(turn_ids)).order_by(table.c.id)
    for row in connection.execute(query).mappings():
        judged = judgement_from_row(row)
        by_turn[row["turn_id"]].append(
            {
                "kind": row["kind"],
                "score": row["score"],
                "reason": reason_of(judged.score, judged.votes) if judged.kind == "eval" else "",
                "votes": unpack_json(row["votes"]),
                "hints": unpack_json(row["hints"]),
                "judge": row["judge"],
                "prompt": row["prompt"],
                "latency_s": row["latency"],
                "created_at": row["created_at"],
            }
        )
    return by_turn


def outcome(row: Mapping[Any, Any]) -> Json:
    """Returns the training status of a turn.

    `stage` is waiting, judging, ready, training, trained, dropped or lost (not judged).
    """
    state, sample = row["state"], row["sample_state"]
    if sample is not None:
        stages = {SampleState.READY: "ready", SampleState.LEASED: "training"}
        stage = stages.get(sample, str(sample))
    else:
        stage = {"captured": "waiting", "imported": "waiting", "answered": "judging"}.get(state, "lost")
    return {
        "stage": stage,
        "state": state,
        "reason": row["sample_reason"] or row["state_reason"],
        "trained_version": row["trained_version"],
    }


def select_turns() -> Any:
    """Returns the query for turns with the columns that `shown_turn` needs."""
    turn, body, sample = schema.turn, schema.turn_body, schema.sample
    columns = [body.c.messages, body.c.response_message, body.c.next_state, body.c.version_spans]
    of_sample = [sample.c.state.label("sample_state"), sample.c.reason.label("sample_reason")]
    return (
        select(turn, *columns, *of_sample, sample.c.trained_version)
        .join_from(turn, body, body.c.turn_id == turn.c.id)
        .outerjoin(sample, sample.c.turn_id == turn.c.id)
    )


def shown_turn(row: RowMapping, judged: list[Json]) -> Json:
    """Returns a turn for display: messages, answer, the messages after the answer, judgements and training status."""
    messages = unpack_json(row["messages"])
    following = None if row["next_state"] is None else unpack_json(row["next_state"])
    return {
        "completion_id": row["completion_id"],
        "turn_index": row["turn_index"],
        "turn_type": row["turn_type"],
        "created_at": row["created_at"],
        "finish_reason": row["finish_reason"],
        "weight_versions": [span[0] for span in unpack_json(row["version_spans"])],
        "messages": [shown_message(message) for message in new_messages(messages)],
        "answer": shown_message(unpack_json(row["response_message"])),
        "next_state": None if following is None else [shown_message(message) for message in following],
        "judgements": judged,
        "outcome": outcome(dict(row)),
    }


def _described(connection: Connection, rows: Sequence[RowMapping]) -> list[Json]:
    """Returns sessions with their first words, mean score and number of trained turns."""
    turn, judgement, sample = schema.turn.c, schema.judgement.c, schema.sample.c
    ids = [row["id"] for row in rows]
    scores = select(turn.session_id, func.avg(judgement.score)).join_from(
        schema.turn, schema.judgement, judgement.turn_id == turn.id
    )
    scores = scores.where(turn.session_id.in_(ids), judgement.kind == "eval").group_by(turn.session_id)
    trained = select(turn.session_id, func.count()).join_from(
        schema.turn, schema.sample, sample.turn_id == turn.id
    )
    trained = trained.where(turn.session_id.in_(ids), sample.state == str(SampleState.TRAINED))
    mean = {row[0]: row[1] for row in connection.execute(scores)}
    count = {row[0]: row[1] for row in connection.execute(trained.group_by(turn.session_id))}
    return [
        {
            **{str(name): value for name, value in row.items() if name != "key_name"},
            "score": mean.get(row["id"]),
            "trained": count.get(row["id"], 0),
            "preview": _first_words(connection, row["id"]),
        }
        for row in rows
    ]


def _first_words(connection: Connection, session_id: str) -> str:
    turn, body = schema.turn.c, schema.turn_body.c
    query = select(body.messages).join_from(schema.turn, schema.turn_body, body.turn_id == turn.id)
    query = query.where(turn.session_id == session_id).order_by(turn.turn_index).limit(1)
    data = connection.scalar(query)
    return "" if data is None else preview(unpack_json(data))
