"""Imports an exported file into a store, after validating all of it. Stored entries do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, or_, select, update

from openclaw.common.messages import Picture
from openclaw.errors import StoreError
from openclaw.store import pictures, schema
from openclaw.store.files.jsonl import (
    SAMPLE_COLUMNS,
    HeaderLine,
    Line,
    SampleEntry,
    SessionLine,
    TurnLine,
    VersionLine,
    read_line,
)
from openclaw.store.rollout_store import RolloutStore
from openclaw.store.rows import body_row, check_new_turn, judgement_row, mask_fits, pack_json, turn_row
from openclaw.store.turns import touch
from openclaw.types import Session, Turn, TurnState, WeightVersion

BATCH = 200
"""Lines written in one transaction."""

_RUNNING = (TurnState.CAPTURED, TurnState.ANSWERED, TurnState.JUDGED)


def import_lines(store: RolloutStore, path: Path) -> dict[str, int]:
    """Adds the entries of an exported file to a store. Entries whose id is stored already do not change.

    All lines are validated before the first one is stored. They are stored in several transactions; if the database
    fails, importing the file again adds the missing entries.

    Returns:
        The number of added {"sessions", "turns", "versions"}, and of {"known"}: entries that were stored before.

    Raises:
        StoreError: a line is invalid (the error names file, line and field; nothing is stored), or the database failed.
    """
    for _ in checked_lines(path):
        pass
    added: Counter[str] = Counter(sessions=0, turns=0, versions=0, known=0)
    lines = _lines_of(path)
    while batch := list(islice(lines, BATCH)):
        with store.database.transaction() as connection:
            for line in batch:
                added[_add(connection, line)] += 1
    del added["header"]
    return dict(added)


def checked_lines(path: Path) -> Iterator[Line]:
    """Yields the validated lines of an exported file. Raises StoreError for an invalid line."""
    for line in _lines_of(path):
        if isinstance(line, TurnLine):
            _check(line, path)
        yield line


def _lines_of(path: Path) -> Iterator[Line]:
    """Yields the parsed lines. Raises StoreError if the file cannot be read, or is not an export."""
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, 1):
                line = read_line(data, f"{path} line {number}")
                if (number == 1) != isinstance(line, HeaderLine):
                    raise StoreError(
                        f'{path} line {number}: kind: must be "store" in the first line, and in no other line'
                    )
                yield line
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _check(line: TurnLine, path: Path) -> None:
    """Raises StoreError if a turn is inconsistent."""
    turn, sample = line.turn, line.sample
    if turn.turn_index is None:
        raise StoreError(f"{path}: turn {turn.id}: turn_index is missing")
    if turn.state in _RUNNING and turn.source != "import":
        check_new_turn(replace(turn, state=TurnState.CAPTURED))
    if (turn.state is TurnState.JUDGED) != (sample is not None):
        raise StoreError(
            f"{path}: turn {turn.id} is {turn.state}: a judged turn needs a sample, and no other turn may have one"
        )
    try:
        [Picture.of_url(url) for url in line.pictures.values()]
    except ValueError as error:
        raise StoreError(f"{path}: turn {turn.id}: pictures: {error}") from error
    if line.wishes and turn.person is None:
        raise StoreError(f"{path}: turn {turn.id}: a turn with wishes (preferences) needs a person")
    if sample is not None and not mask_fits(sample.loss_mask, turn.completion_ids):
        raise StoreError(
            f"{path}: turn {turn.id}: loss_mask must have {len(turn.completion_ids)} values, each 0 or 1"
        )


def _add(connection: Connection, line: Line) -> str:
    """Adds a line to the store. Returns the name under which `import_lines` counts it."""
    match line:
        case HeaderLine():
            return "header"
        case SessionLine():
            return _add_session(connection, line.session)
        case VersionLine():
            return _add_version(connection, line.version)
        case TurnLine():
            return _add_turn(connection, line)


def _add_session(connection: Connection, session: Session) -> str:
    table = schema.session
    if connection.execute(select(table.c.id).where(table.c.id == session.id)).first() is not None:
        return "known"
    connection.execute(insert(table).values(**{**vars(session), "turns": 0}))
    return "sessions"


def _add_version(connection: Connection, version: WeightVersion) -> str:
    table = schema.weight_version
    same_version = (table.c.trainer == version.trainer) & (table.c.version == version.version)
    if connection.execute(select(table.c.id).where(same_version)).first() is not None:
        return "known"
    details = pack_json(version.details) if version.details else None
    row = {**vars(version), "status": str(version.status), "details": details}
    connection.execute(insert(table).values(**row))
    return "versions"


def _add_turn(connection: Connection, line: TurnLine) -> str:
    turn, table = line.turn, schema.turn
    same = or_(table.c.id == turn.id, table.c.completion_id == turn.completion_id)
    if connection.execute(select(table.c.id).where(same)).first() is not None:
        return "known"
    _count_turn(connection, turn)
    later = {name: getattr(turn, name) for name in ("answered_at", "judged_at", "judge_attempts")}
    connection.execute(insert(table), turn_row(turn, turn.turn_index or 0) | later)
    next_state = None if turn.next_state is None else pack_json(turn.next_state)
    connection.execute(insert(schema.turn_body), body_row(turn) | {"next_state": next_state})
    pictures.keep(connection, turn, {name: Picture.of_url(url) for name, url in line.pictures.items()})
    for entry in line.judgements:
        connection.execute(
            insert(schema.judgement), judgement_row(turn.id, entry.judgement, entry.created_at)
        )
    for feedback in line.feedback:
        row = {"turn_id": turn.id, **feedback.model_dump(), "text": pack_json(feedback.text)}
        connection.execute(insert(schema.feedback), row)
    for wish in line.wishes:
        row = {**wish.model_dump(), "text": pack_json(wish.text), "details": pack_json(wish.details)}
        about = {"turn_id": turn.id, "person": turn.person, "key_name": turn.key_name}
        connection.execute(insert(schema.memory), about | row)
    if line.sample is not None:
        _add_sample(connection, turn.id, line.sample)
    return "turns"


def _count_turn(connection: Connection, turn: Turn) -> None:
    session = schema.session
    counted = update(session).where(session.c.id == turn.session_id).values(turns=session.c.turns + 1)
    if connection.execute(counted).rowcount == 0:  # the turn's session is not in the file
        touch(connection, turn.session_id, turn.person, turn.key_name, new_turns=1)


def _add_sample(connection: Connection, turn_id: str, sample: SampleEntry) -> None:
    row: dict[str, Any] = {name: getattr(sample, name) for name in SAMPLE_COLUMNS}
    row |= {
        "turn_id": turn_id,
        "state": str(sample.state),
        "reward": pack_json(sample.reward),
        "loss_mask": None if sample.loss_mask is None else bytes(sample.loss_mask),
        "extra": pack_json(sample.metadata),
        "teacher": pack_json(sample.teacher) if sample.teacher else None,
    }
    key = connection.execute(insert(schema.sample).values(**row)).inserted_primary_key
    if sample.tokens is not None and key:
        row = {"sample_id": key[0], "data": pack_json(sample.tokens), "created_at": sample.created_at}
        connection.execute(insert(schema.token_record), row)
    for training in sample.trainings:
        connection.execute(
            insert(schema.training).values(sample_id=key[0] if key else None, **training.model_dump())
        )
