"""Answered turns are claimed by judge workers; judgement and sample (or counted drop) are stored together."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, or_, select, update

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, slices
from openclaw.store.feedback import feedback_is_current
from openclaw.store.memory import remember
from openclaw.store.rows import (
    check_turn,
    judgement_from_row,
    judgement_row,
    mask_fits,
    pack_json,
    pack_teacher,
    select_turns,
    turn_from_row,
    unpack_ids,
)
from openclaw.types import Drop, Judgement, SampleDraft, SampleState, Turn, TurnState

REASON_CHARS = 160
_LONGEST_RETURN_SECONDS = 600.0
"""A turn that is given back may be claimed again by then."""


class JudgementTable:
    """answered -> judged. A claim that its worker does not finish in time is free for the next worker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def answered_count(self) -> int:
        """How many turns wait for a judgement, claimed ones included."""
        with self._database.reading() as connection:
            query = select(func.count()).where(schema.turn.c.state == str(TurnState.ANSWERED))
            return connection.scalar(query) or 0

    def claim(self, worker: str, limit: int, claim_seconds: float) -> list[Turn]:
        """Take up to `limit` answered turns, oldest first, for `claim_seconds`. Two workers never hold one
        turn."""
        turn = schema.turn.c
        free = (
            select(turn.id).where(*_free(time.time(), claim_seconds)).order_by(turn.answered_at).limit(limit)
        )
        with self._database.reading() as connection:
            if connection.execute(free.limit(1)).first() is None:
                return []
        with self._database.transaction() as connection:
            ids = list(connection.scalars(free.with_for_update(skip_locked=True)))
            connection.execute(
                update(schema.turn)
                .where(turn.id.in_(ids))
                .values(
                    claimed_by=worker,
                    claimed_until=time.time() + claim_seconds,
                    judge_attempts=turn.judge_attempts + 1,
                )
            )
        with self._database.reading() as connection:
            rows = connection.execute(select_turns(turn.id.in_(ids)).order_by(turn.answered_at)).mappings()
            return [turn_from_row(row) for row in rows]

    def release_claim(
        self, turn_id: str, retry_after: float = 0.0, was_try: bool = True, reason: str = ""
    ) -> None:
        """Give a claimed turn back; it can be claimed again in `retry_after` seconds. was_try False: the claim does not
        count among its tries. `reason`: why it is not judged yet, for people, until it is."""
        turn = schema.turn.c
        free = {"claimed_by": None, "claimed_until": time.time() + retry_after if retry_after else None}
        tries = turn.judge_attempts if was_try else turn.judge_attempts - 1
        with self._database.transaction() as connection:
            connection.execute(
                update(schema.turn)
                .where(turn.id == turn_id, turn.state == str(TurnState.ANSWERED))
                .values(**free, judge_attempts=tries, state_reason=reason[:REASON_CHARS] or None)
            )

    def release_claims_of(self, worker: str) -> int:
        """Give back every turn that a worker of this name holds (it has died, or is just starting)."""
        with self._database.transaction() as connection:
            held = update(schema.turn).where(
                schema.turn.c.state == str(TurnState.ANSWERED), schema.turn.c.claimed_by == worker
            )
            return connection.execute(held.values(claimed_by=None, claimed_until=None)).rowcount

    def finish(self, turn_id: str, judgements: list[Judgement], outcome: SampleDraft | Drop) -> bool:
        """Store what the judge found and what the method made of it, in one transaction.

        False, and no change, when another worker has finished this turn, it was deleted, or there is new feedback
        on it since these judgements were made (the turn is free to be claimed again then). Raises
        StoreError when the turn is not answered, or the draft does not fit the turn.
        """
        now = time.time()
        with self._database.transaction() as connection:
            known = select(schema.turn.c.state).where(schema.turn.c.id == turn_id).with_for_update()
            state = connection.scalar(known)
            if state is None or state == TurnState.JUDGED:
                return False
            check_turn(turn_id, state, TurnState.JUDGED)
            if not feedback_is_current(connection, turn_id, judgements):
                return False
            if isinstance(outcome, SampleDraft):
                _check_draft(connection, turn_id, outcome)
            for judgement in judgements:
                connection.execute(insert(schema.judgement), judgement_row(turn_id, judgement, now))
            remember(connection, turn_id, judgements, now)
            connection.execute(insert(schema.sample), _sample_row(turn_id, outcome, now))
            connection.execute(
                update(schema.turn)
                .where(schema.turn.c.id == turn_id)
                .values(
                    state=str(TurnState.JUDGED),
                    state_reason=None,
                    judged_at=now,
                    claimed_by=None,
                    claimed_until=None,
                )
            )
        return True

    def of_turn(self, turn_id: str) -> list[Judgement]:
        """In the order they were stored."""
        table = schema.judgement
        with self._database.reading() as connection:
            rows = connection.execute(
                select(table).where(table.c.turn_id == turn_id).order_by(table.c.id)
            ).mappings()
            return [judgement_from_row(row) for row in rows]

    def newest_number(self, turn_ids: Sequence[str] | None = None) -> int:
        """The number of the newest judgement, of all or of these turns; 0 if there is none. It grows with time."""
        judgement = schema.judgement.c
        with self._database.reading() as connection:
            if turn_ids is None:
                return connection.scalar(select(func.max(judgement.id))) or 0
            newest = (
                connection.scalar(select(func.max(judgement.id)).where(judgement.turn_id.in_(ids)))
                for ids in slices(list(turn_ids))
            )
            return max((one or 0 for one in newest), default=0)


def _free(now: float, claim_seconds: float) -> tuple[ColumnElement[bool], ...]:
    """Conditions of a turn that waits unclaimed. A claim of impossible length is void: the clock was set back."""
    until, longest = schema.turn.c.claimed_until, max(claim_seconds, _LONGEST_RETURN_SECONDS)
    return (
        schema.turn.c.state == str(TurnState.ANSWERED),
        or_(until.is_(None), until < now, until > now + longest),
    )


def _check_draft(connection: Connection, turn_id: str, draft: SampleDraft) -> None:
    if draft.turn_id != turn_id:
        raise StoreError(f"the sample of turn {turn_id} names turn {draft.turn_id}")
    rewards = draft.reward.values() if isinstance(draft.reward, dict) else [draft.reward]
    if not all(math.isfinite(value) for value in rewards):
        raise StoreError(f"turn {turn_id}: the reward {draft.reward} is not a finite number")
    body = schema.turn_body.c
    packed = connection.scalar(select(body.completion_ids).where(body.turn_id == turn_id))
    completion = unpack_ids(packed or b"")
    if not mask_fits(draft.loss_mask, completion):
        raise StoreError(f"turn {turn_id}: the loss mask is not {len(completion)} numbers of 0 or 1")
    _check_teacher(turn_id, draft, completion)


def _check_teacher(turn_id: str, draft: SampleDraft, completion: list[int]) -> None:
    length = len(completion)
    for ids in draft.teacher_tokens_candidates or []:
        if len(ids) <= length or ids[len(ids) - length :] != completion:
            raise StoreError(
                f"turn {turn_id}: a teacher's ids are not a prompt and the {length} ids of the answer"
            )
    log_probs, indices = draft.teacher_topk_log_probs, draft.teacher_topk_indices
    for values in (draft.teacher_log_probs, log_probs, indices):
        if values is not None and len(values) != length:
            raise StoreError(f"turn {turn_id}: {len(values)} log-probs of a teacher for {length} ids")
    if [len(row) for row in log_probs or []] != [len(row) for row in indices or []]:
        raise StoreError(f"turn {turn_id}: a teacher's best ids and their log-probs come only together")


def _sample_row(turn_id: str, outcome: SampleDraft | Drop, now: float) -> dict[str, Any]:
    row: dict[str, Any] = {"turn_id": turn_id, "created_at": now}
    if isinstance(outcome, Drop):
        empty = {"reward": pack_json(0.0), "loss_mask": None, "extra": pack_json({}), "teacher": None}
        return row | empty | {"state": str(SampleState.DROPPED), "reason": outcome.reason}
    return row | {
        "state": str(SampleState.READY),
        "reason": None,
        "reward": pack_json(outcome.reward),
        "loss_mask": None if outcome.loss_mask is None else bytes(outcome.loss_mask),
        "extra": pack_json(outcome.metadata),
        "teacher": pack_teacher(outcome),
    }
