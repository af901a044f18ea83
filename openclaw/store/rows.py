"""Converts records to and from database rows, and checks state changes.

Binary columns contain zlib-compressed JSON, token ids as zlib-compressed int32, or log-probs as float64; all numbers
are little-endian. float64 keeps every log-prob exactly.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, RowMapping, Select, select

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.types import Judgement, NewTurn, PlacedPicture, SampleState, TeacherSide, Turn, TurnState, Vote

FIRST_TURN_STATES = frozenset(
    {TurnState.CAPTURED, TurnState.SIDE, TurnState.ABORTED, TurnState.UNTRAINABLE, TurnState.IMPORTED}
)
"""States that a new turn may have."""

TURN_MOVES: dict[TurnState, frozenset[TurnState]] = {
    TurnState.CAPTURED: frozenset({TurnState.ANSWERED, TurnState.EXPIRED}),
    TurnState.IMPORTED: frozenset({TurnState.ANSWERED}),
    TurnState.ANSWERED: frozenset({TurnState.JUDGED}),
    TurnState.EXPIRED: frozenset({TurnState.ANSWERED}),
    TurnState.JUDGED: frozenset({TurnState.ANSWERED}),
}
"""Allowed state changes of turns. Only feedback makes an expired or judged turn answered again."""

SAMPLE_MOVES: dict[SampleState, frozenset[SampleState]] = {
    SampleState.READY: frozenset({SampleState.LEASED, SampleState.DROPPED}),
    SampleState.LEASED: frozenset(
        {SampleState.TRAINED, SampleState.READY, SampleState.DROPPED, SampleState.QUARANTINED}
    ),
    SampleState.TRAINED: frozenset({SampleState.READY, SampleState.QUARANTINED}),
    SampleState.QUARANTINED: frozenset({SampleState.READY, SampleState.TRAINED, SampleState.DROPPED}),
}
"""Allowed state changes of samples.

A sample is ready again if its lease is released, all versions that trained on it are rolled back, or it is released
from quarantine. A quarantined sample is trained again if a version that trained on it goes live again.
"""


def check_turn(turn_id: str, state: str, to: TurnState) -> None:
    """Raises StoreError if a turn in `state` cannot become `to`."""
    if to not in TURN_MOVES.get(TurnState(state), frozenset()):
        raise StoreError(f"turn {turn_id} is {state}: it cannot become {to}")


def check_sample(sample_id: int, state: str, to: SampleState) -> None:
    """Raises StoreError if a sample in `state` cannot become `to`."""
    if to not in SAMPLE_MOVES.get(SampleState(state), frozenset()):
        raise StoreError(f"sample {sample_id} is {state}: it cannot become {to}")


_SMALL = [
    "id",
    "completion_id",
    "policy_id",
    "session_id",
    "person",
    "parent_id",
    "turn_index",
    "turn_type",
    "state_reason",
    "finish_reason",
    "render_mode",
    "tokenizer_fingerprint",
    "template_fingerprint",
    "transcript_digest",
    "source",
    "group_id",
    "task_id",
    "key_name",
    "created_at",
]
"""Columns of `turn` that have the name of a field of NewTurn, with the same value."""
_LATER = ["answered_at", "judged_at", "judge_attempts"]
"""Columns of `turn` that change after the turn is recorded."""
_COMPRESS_FROM = 256
"""Bytes from which JSON is compressed. Uncompressed JSON cannot begin with the zlib header byte."""
_ZLIB_HEADER = 0x78
_LEVEL = 1


def check_new_turn(turn: NewTurn) -> None:
    """Raises StoreError if a new turn has an invalid state, or inconsistent ids, log-probs and version spans."""
    if turn.state not in FIRST_TURN_STATES:
        raise StoreError(f"turn {turn.id}: a new turn cannot be {turn.state}")
    if turn.state is TurnState.UNTRAINABLE and not turn.state_reason:
        raise StoreError(f"turn {turn.id}: an untrainable turn needs a state_reason")
    if turn.is_of_adapter and turn.state is TurnState.IMPORTED:
        raise StoreError(
            f"turn {turn.id}: answers of adapters cannot be imported, and policy_id {turn.policy_id!r} is an adapter"
        )
    if turn.state is not TurnState.CAPTURED:
        return
    length = len(turn.completion_ids)
    if not length or not turn.prompt_ids:
        raise StoreError(f"turn {turn.id}: a captured turn needs prompt and completion ids")
    log_probs = turn.completion_log_probs
    if log_probs is None or len(log_probs) != length:
        raise StoreError(f"turn {turn.id}: {len(log_probs or [])} log-probs for {length} completion ids")
    covered = 0
    for _version, start, end in turn.version_spans:
        covered = end if start == covered < end else -1
    if covered != length:
        raise StoreError(
            f"turn {turn.id}: version spans {turn.version_spans} do not cover {length} completion ids"
        )


def mask_fits(mask: list[int] | None, completion_ids: list[int]) -> bool:
    """Returns whether a loss mask has one 0 or 1 for each completion token. None fits every completion."""
    return mask is None or (len(mask) == len(completion_ids) and set(mask) <= {0, 1})


def turn_row(turn: NewTurn, turn_index: int) -> dict[str, Any]:
    """Returns the row of a new turn in the table `turn`."""
    row = {name: getattr(turn, name) for name in _SMALL}
    return row | {"state": str(turn.state), "turn_index": turn_index, "judge_attempts": 0}


def body_row(turn: NewTurn) -> dict[str, Any]:
    """Returns the row of a new turn in the table `turn_body`."""
    return {
        "turn_id": turn.id,
        "messages": pack_json(turn.messages),
        "tools": None if turn.tools is None else pack_json(turn.tools),
        "response_message": pack_json(turn.response_message),
        "prompt_ids": pack_ids(turn.prompt_ids),
        "completion_ids": pack_ids(turn.completion_ids),
        "completion_log_probs": pack_floats(turn.completion_log_probs or []),
        "version_spans": pack_json(turn.version_spans),
        "sampling": pack_json(turn.sampling),
        "next_state": None,
        "memory": None if turn.memory is None else pack_json(turn.memory),
        "pictures": pack_json(turn.pictures) if turn.pictures else None,
    }


def select_turns(*where: ColumnElement[bool]) -> Select[Any]:
    """Returns a query for complete turns that match all conditions. `turn_from_row` converts its rows."""
    return (
        select(schema.turn, schema.turn_body)
        .join_from(schema.turn, schema.turn_body, schema.turn_body.c.turn_id == schema.turn.c.id)
        .where(*where)
    )


def turn_from_row(row: RowMapping | Mapping[str, Any]) -> Turn:
    """Returns the turn of a row of `select_turns`."""
    completion_ids = unpack_ids(row["completion_ids"])
    log_probs = unpack_floats(row["completion_log_probs"])
    return Turn(
        **{name: row[name] for name in (*_SMALL, *_LATER)},
        state=TurnState(row["state"]),
        messages=unpack_json(row["messages"]),
        tools=None if row["tools"] is None else unpack_json(row["tools"]),
        response_message=unpack_json(row["response_message"]),
        prompt_ids=unpack_ids(row["prompt_ids"]),
        completion_ids=completion_ids,
        completion_log_probs=None if completion_ids and not log_probs else log_probs,
        version_spans=[(version, start, end) for version, start, end in unpack_json(row["version_spans"])],
        sampling=unpack_json(row["sampling"]),
        next_state=None if row["next_state"] is None else unpack_json(row["next_state"]),
        memory=None if row["memory"] is None else unpack_json(row["memory"]),
        pictures=[]
        if row["pictures"] is None
        else [PlacedPicture(**one) for one in unpack_json(row["pictures"])],
    )


def judgement_row(turn_id: str, judgement: Judgement, now: float) -> dict[str, Any]:
    """Returns the row of a judgement that is stored at `now`, in Unix seconds."""
    return {
        "turn_id": turn_id,
        "kind": judgement.kind,
        "score": judgement.score,
        "votes": pack_json([vars(vote) for vote in judgement.votes]),
        "hints": pack_json(judgement.hints),
        "judge": judgement.judge,
        "prompt": judgement.prompt,
        "latency": judgement.latency,
        "created_at": now,
    }


def judgement_from_row(row: RowMapping) -> Judgement:
    """Returns the judgement of a row."""
    return Judgement(
        kind=row["kind"],
        score=row["score"],
        votes=[Vote(**vote) for vote in unpack_json(row["votes"])],
        judge=row["judge"],
        prompt=row["prompt"],
        hints=unpack_json(row["hints"]),
        latency=row["latency"],
    )


def pack_teacher(side: TeacherSide) -> bytes | None:
    """Returns the value of a sample's column `teacher`; None without a teacher."""
    fields = side.teacher_fields()
    return pack_json(fields) if fields else None


def unpack_teacher(data: bytes | None) -> dict[str, Any]:
    """Returns the fields of TeacherSide that are set, from a sample's column `teacher`."""
    return {} if data is None else dict(unpack_json(data))


def pack_json(value: object) -> bytes:
    """Returns a value as JSON, compressed if long. Raises TypeError for a value that JSON cannot represent."""
    data = orjson.dumps(value)
    return zlib.compress(data, _LEVEL) if len(data) >= _COMPRESS_FROM else data


def unpack_json(data: bytes) -> Any:
    """Returns the value that `pack_json` encoded."""
    return orjson.loads(zlib.decompress(data) if data[0] == _ZLIB_HEADER else data)


def pack_ids(ids: Sequence[int]) -> bytes:
    """Returns token ids [T] as compressed int32. Raises OverflowError for an id that does not fit."""
    return zlib.compress(_little_endian(array("i", ids)).tobytes(), _LEVEL)


def unpack_ids(data: bytes) -> list[int]:
    """Returns the token ids [T] that `pack_ids` encoded."""
    return _from_bytes("i", zlib.decompress(data)).tolist()


def pack_floats(values: Sequence[float]) -> bytes:
    """Returns numbers [T] as float64."""
    return _little_endian(array("d", values)).tobytes()


def unpack_floats(data: bytes) -> list[float]:
    """Returns the numbers [T] that `pack_floats` encoded."""
    return _from_bytes("d", data).tolist()


def _little_endian(values: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _from_bytes(typecode: str, data: bytes) -> array[Any]:
    values: array[Any] = array(typecode)
    values.frombytes(data)
    return _little_endian(values)
