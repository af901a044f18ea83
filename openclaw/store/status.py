"""Read-only queries for the status of turns, from capture to training, and for counts by status.

A status contains no text of conversations except hints and the reasons of judges.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, func, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.rights import ADMINISTRATOR, Asker, usable
from openclaw.store.rows import judgement_from_row, unpack_json
from openclaw.types import SampleState, TurnState, reason_of, unsampled

_LOST_TURNS = (TurnState.EXPIRED, TurnState.UNTRAINABLE, TurnState.ABORTED)


@dataclass(frozen=True, kw_only=True)
class TurnStatus:
    """The status of a turn.

    Attributes:
        created_at: Unix seconds.
        weight_versions: versions that sampled the answer, in order.
        score: score of the last judgement, -1 to 1; None if the turn is not judged.
        judge: name of the judge.
        reason: the judge's reason for the score, in one line.
        hints: hints of all judgements.
        sample_state: None if the turn is not judged.
        trained_version: version that was trained on the turn.
        unsampled: reason why the score cannot be trained on, see `Turn.unsampled`.
    """

    completion_id: str
    session_id: str
    turn_index: int
    turn_type: str
    person: str | None
    state: str
    state_reason: str | None
    created_at: float
    weight_versions: list[int]
    score: float | None
    judge: str | None
    reason: str | None
    hints: list[str]
    sample_state: str | None
    drop_reason: str | None
    trained_version: int | None
    unsampled: str | None


class StatusTable:
    """Status of turns, joined from turns, judgements and samples."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_completion(self, completion_id: str, asker: Asker = ADMINISTRATOR) -> TurnStatus | None:
        """Returns the status of a turn; None if the asker can access no such turn."""
        condition = and_(schema.turn.c.completion_id == completion_id, *usable(asker))
        with self._database.reading() as connection:
            statuses = _statuses(connection, condition, limit=1)
        return statuses[0] if statuses else None

    def recent(self, limit: int, session_id: str | None = None) -> list[TurnStatus]:
        """Returns the status of the `limit` newest turns, of one session or (None) of all, newest first."""
        condition = schema.turn.c.session_id == session_id if session_id is not None else None
        with self._database.reading() as connection:
            return _statuses(connection, condition, limit)

    def counts(self) -> dict[str, dict[str, int]]:
        """Returns counts, read from covering indexes.

        Returns:
            turns, samples: counts by state.
            dropped: by reason, the number of samples dropped by judge, method or trainer, and of turns that ended
                without a sample (expired, untrainable, aborted).
            judge_failures: by last error, the number of turns that wait for another attempt of the judge.
        """
        turn, sample = schema.turn.c, schema.sample.c
        turns: Counter[str] = Counter()
        samples: Counter[str] = Counter()
        dropped: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        with self._database.reading() as connection:
            turn_counts = select(turn.state, turn.state_reason, func.count()).group_by(
                turn.state, turn.state_reason
            )
            for state, reason, n in connection.execute(turn_counts):
                turns[state] += n
                if state in _LOST_TURNS:
                    dropped[reason or state] += n
                elif state == TurnState.ANSWERED and reason:
                    failures[reason] += n
            sample_counts = select(sample.state, sample.reason, func.count()).group_by(
                sample.state, sample.reason
            )
            for state, reason, n in connection.execute(sample_counts):
                samples[state] += n
                if state == SampleState.DROPPED:
                    dropped[reason or state] += n
        return {
            "turns": dict(turns),
            "samples": dict(samples),
            "dropped": dict(dropped),
            "judge_failures": dict(failures),
        }


def _statuses(connection: Connection, condition: Any, limit: int) -> list[TurnStatus]:
    turn, sample = schema.turn, schema.sample
    query = (
        select(
            turn,
            sample.c.state.label("sample_state"),
            sample.c.reason.label("sample_reason"),
            sample.c.reward,
            sample.c.trained_version,
            schema.turn_body.c.version_spans,
            schema.turn_body.c.sampling,
        )
        .select_from(turn)
        .join(schema.turn_body, schema.turn_body.c.turn_id == turn.c.id)
        .outerjoin(sample, sample.c.turn_id == turn.c.id)
        .order_by(turn.c.created_at.desc(), turn.c.turn_index.desc())
        .limit(limit)
    )
    rows = connection.execute(query if condition is None else query.where(condition)).mappings().all()
    return [_status(connection, row) for row in rows]


def _status(connection: Connection, row: RowMapping) -> TurnStatus:
    judgement = schema.judgement
    query = select(judgement).where(judgement.c.turn_id == row["id"])
    judgements = connection.execute(query.order_by(judgement.c.id)).mappings().all()
    evals = [one for one in judgements if one["kind"] == "eval"]
    return TurnStatus(
        completion_id=row["completion_id"],
        session_id=row["session_id"],
        turn_index=row["turn_index"],
        turn_type=row["turn_type"],
        person=row["person"],
        state=row["state"],
        state_reason=row["state_reason"],
        created_at=row["created_at"],
        weight_versions=[span[0] for span in unpack_json(row["version_spans"])],
        score=evals[-1]["score"] if evals else None,
        judge=evals[-1]["judge"] if evals else None,
        reason=_reason(evals[-1]) if evals else None,
        hints=[hint for one in judgements for hint in unpack_json(one["hints"])],
        sample_state=row["sample_state"],
        drop_reason=row["sample_reason"],
        trained_version=row["trained_version"],
        unsampled=unsampled(unpack_json(row["sampling"])),
    )


def _reason(row: RowMapping) -> str | None:
    parsed = judgement_from_row(row)
    return reason_of(parsed.score, parsed.votes) or None
