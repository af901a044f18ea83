"""Exports a store as JSON lines, without loss: ids, log-probs, version spans, judgements, states.

Only row ids and claims of judges are omitted; they have no meaning outside the database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, func, select, true

from openclaw.store import pictures, schema
from openclaw.store.files.jsonl import (
    SAMPLE_COLUMNS,
    FeedbackEntry,
    HeaderLine,
    JudgementEntry,
    Line,
    SampleEntry,
    SessionLine,
    TrainingEntry,
    TurnLine,
    VersionLine,
    WishEntry,
    dump_line,
)
from openclaw.store.rights import of_person
from openclaw.store.rollout_store import RolloutStore
from openclaw.store.rows import judgement_from_row, select_turns, turn_from_row, unpack_json, unpack_teacher
from openclaw.store.versions import version_from_row
from openclaw.types import SampleState, Session

BATCH = 200
"""Turns loaded at a time."""


def export_lines(
    store: RolloutStore, session_id: str | None = None, person: str | None = None
) -> Iterator[bytes]:
    """Yields the lines of `exported` as JSON. Raises StoreError."""
    return map(dump_line, exported(store, session_id, person))


def exported(store: RolloutStore, session_id: str | None = None, person: str | None = None) -> Iterator[Line]:
    """Yields the content of the store: header, weight versions, sessions, and turns from oldest to newest.

    Args:
        session_id: export only this session, without weight versions.
        person: export only this person's sessions and turns, without weight versions.

    Raises:
        StoreError: the database failed.
    """
    turn, session = schema.turn.c, schema.session.c
    turns, sessions = _conditions(session_id, person)
    with store.database.reading() as connection:
        yield HeaderLine()
        if session_id is None and person is None:
            for row in connection.execute(select(schema.weight_version)).mappings():
                yield VersionLine(version=version_from_row(row))
        for row in connection.execute(
            select(schema.session).where(sessions).order_by(session.created_at)
        ).mappings():
            yield SessionLine(session=Session(**row))
        ids = connection.scalars(select(turn.id).where(turns).order_by(turn.created_at, turn.id)).all()
        written = set[str]()
        for start in range(0, len(ids), BATCH):
            for line in _turn_lines(connection, ids[start : start + BATCH]):
                yield _with_pictures(connection, line, written)


def _with_pictures(connection: Connection, line: TurnLine, written: set[str]) -> TurnLine:
    """Adds the pictures of a turn that are not among those `written` already."""
    names = {one.sha256 for one in line.turn.pictures} - written
    if not names:
        return line
    written |= names
    by_name = pictures.read(connection, names)
    return line.model_copy(update={"pictures": {name: by_name[name].url() for name in sorted(by_name)}})


def sessions_with_turns(
    store: RolloutStore, session_id: str | None = None, person: str | None = None
) -> list[str]:
    """Returns the ids of the sessions in `exported`, oldest first. Raises StoreError."""
    turn = schema.turn.c
    turns, _ = _conditions(session_id, person)
    query = select(turn.session_id).where(turns).group_by(turn.session_id).order_by(func.min(turn.created_at))
    with store.database.reading() as connection:
        return list(connection.scalars(query))


def _conditions(
    session_id: str | None, person: str | None
) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Returns the SQL conditions for the turns and for the sessions to export."""
    turn, session = schema.turn.c, schema.session.c
    turns: ColumnElement[bool] = true()
    sessions: ColumnElement[bool] = true()
    if session_id is not None:
        turns, sessions = turns & (turn.session_id == session_id), sessions & (session.id == session_id)
    if person is not None:
        turns &= of_person(person)
        sessions &= session.person == person
    return turns, sessions


def _turn_lines(connection: Connection, ids: Sequence[str]) -> Iterator[TurnLine]:
    judgements = _by_turn(connection, schema.judgement, ids)
    feedback = _by_turn(connection, schema.feedback, ids)
    wishes = _by_turn(connection, schema.memory, ids)
    samples = {
        row["turn_id"]: row for rows in _by_turn(connection, schema.sample, ids).values() for row in rows
    }
    sample_ids = [row["id"] for row in samples.values()]
    trainings: defaultdict[int, list[TrainingEntry]] = defaultdict(list)
    query = select(schema.training).where(schema.training.c.sample_id.in_(sample_ids))
    for row in connection.execute(query.order_by(schema.training.c.created_at)).mappings():
        entry = {name: row[name] for name in TrainingEntry.model_fields}
        trainings[row["sample_id"]].append(TrainingEntry(**entry))
    table = schema.token_record
    query_tokens = select(table).where(table.c.sample_id.in_(sample_ids))
    tokens = {
        row["sample_id"]: unpack_json(row["data"]) for row in connection.execute(query_tokens).mappings()
    }
    turns = {
        row["id"]: turn_from_row(row)
        for row in connection.execute(select_turns(schema.turn.c.id.in_(ids))).mappings()
    }
    for id_ in ids:
        sample = samples.get(id_)
        yield TurnLine(
            turn=turns[id_],
            judgements=[
                JudgementEntry(judgement=judgement_from_row(row), created_at=row["created_at"])
                for row in judgements[id_]
            ],
            feedback=[
                FeedbackEntry(
                    **{name: row[name] for name in ("score", "created_at", "scope")},
                    text=unpack_json(row["text"]),
                )
                for row in feedback[id_]
            ],
            sample=None
            if sample is None
            else _sample_entry(sample, trainings[sample["id"]], tokens.get(sample["id"])),
            wishes=[_wish_entry(row) for row in wishes[id_]],
        )


def _by_turn(connection: Connection, table: Table, ids: Sequence[str]) -> defaultdict[str, list[RowMapping]]:
    rows_by_turn: defaultdict[str, list[RowMapping]] = defaultdict(list)
    query = select(table).where(table.c.turn_id.in_(ids)).order_by(table.c.id)
    for row in connection.execute(query).mappings():
        rows_by_turn[row["turn_id"]].append(row)
    return rows_by_turn


def _wish_entry(row: RowMapping) -> WishEntry:
    return WishEntry(
        **{name: row[name] for name in ("created_at", "held_by", "held_at")},
        text=unpack_json(row["text"]),
        details={} if row["details"] is None else unpack_json(row["details"]),
    )


def _sample_entry(
    row: RowMapping, trainings: list[TrainingEntry], tokens: dict[str, Any] | None
) -> SampleEntry:
    return SampleEntry(
        **{name: row[name] for name in SAMPLE_COLUMNS},
        state=SampleState(row["state"]),
        reward=unpack_json(row["reward"]),
        loss_mask=None if row["loss_mask"] is None else list(row["loss_mask"]),
        metadata=unpack_json(row["extra"]),
        teacher=unpack_teacher(row["teacher"]),
        trainings=trainings,
        tokens=tokens,
    )
