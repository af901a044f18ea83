"""Tables of feedback by people, and of judgements by judges.

Feedback is stored verbatim and overrides the judgement of a judge. Judge workers claim answered turns. A judgement is
stored in one transaction with the sample, or with the reason why the turn makes none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, slices
from openclaw.store.memory import remember
from openclaw.store.rights import ADMINISTRATOR, Asker, usable
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
    unpack_json,
)
from openclaw.types import (
    USER_JUDGE,
    Drop,
    Feedback,
    Judgement,
    SampleDraft,
    SampleState,
    Turn,
    TurnState,
    Vote,
)

SESSION = "session"
"""`scope` of feedback that was derived from the reward of a whole session."""
REASON_CHARS = 160
"""Most characters of the reason why a turn is not judged yet."""
_LONGEST_RETRY_SECONDS = 600.0
"""Longest time until a released turn may be claimed again."""
_REJUDGED = (SampleState.READY, SampleState.DROPPED)
"""States of a sample that new feedback may replace."""


@dataclass(frozen=True)
class TurnReward:
    """A turn's part of its session's reward.

    Attributes:
        status: as in `Feedback`; "own_score" if the turn has a score of its own, which it keeps.
    """

    completion_id: str
    score: float | None
    status: Literal["judging", "waiting", "recorded", "own_score"]


class FeedbackTable:
    """Feedback on single turns, and rewards of whole sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        *,
        completion_id: str | None = None,
        session_id: str | None = None,
        score: float | None = None,
        text: str = "",
        asker: Asker = ADMINISTRATOR,
    ) -> Feedback | None:
        """Stores a person's feedback on a turn. Returns None if the asker can access no such turn.

        A turn with a score is judged without waiting for a next state. A turn that is already judged is judged again
        unless its sample is leased or trained. Equal consecutive feedback counts once. The last score counts; every
        text becomes a hint.

        Args:
            completion_id: id of the answer; None for the last main turn of `session_id`.
            score: -1 (bad) to 1 (good); None for a text alone.
            text: the requested change, in the person's words.

        Raises:
            StoreError: no id, or neither score nor text, or a score outside -1 to 1.
        """
        _check(completion_id, session_id, score, text)
        with self._database.transaction() as connection:
            turn = connection.execute(_select_turn(completion_id, session_id, asker)).mappings().first()
            if turn is None:
                return None
            status = add_feedback(connection, turn, score, text)
        return Feedback(
            turn_id=turn["id"],
            completion_id=turn["completion_id"],
            session_id=turn["session_id"],
            status=status,
        )

    def judgements_of(self, turn_id: str) -> list[Judgement]:
        """Returns the feedback on a turn as judgements: an `eval` with the last score, and a `hint` with all texts."""
        table = schema.feedback
        query = select(table).where(table.c.turn_id == turn_id).order_by(table.c.id)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        if not rows:
            return []
        name = _name(rows[-1]["id"])
        judgements = []
        scored = [row for row in rows if row["score"] is not None]
        if scored:
            score = float(scored[-1]["score"])
            vote = Vote(score=(score > 0) - (score < 0), text=unpack_json(scored[-1]["text"]))
            judgements.append(
                Judgement(kind="eval", score=score, votes=[vote], judge=USER_JUDGE, prompt=name)
            )
        hints = [text for row in rows if (text := unpack_json(row["text"]))]
        if hints:
            votes = [Vote(score=1, hint=hint) for hint in hints]
            judgements.append(
                Judgement(kind="hint", score=1.0, votes=votes, judge=USER_JUDGE, prompt=name, hints=hints)
            )
        return judgements

    def reward_session(
        self,
        session_id: str,
        score: float,
        text: str = "",
        discount: float = 1.0,
        asker: Asker = ADMINISTRATOR,
    ) -> list[TurnReward]:
        """Distributes a reward over the main turns of a session.

        The turn k main turns before the last one gets score * discount ** k, stored as feedback on it (see `record`).
        All turns are updated in one transaction. A turn with its own score keeps it. An earlier reward of the session
        is replaced. The text is a hint for the last turn only.

        Args:
            score: -1 (bad) to 1 (good).
            discount: 0 to 1; 1 gives every turn the whole score, 0 only the last turn.
            asker: sender of the request; turns that it may not access are ignored.

        Returns:
            The rewarded turns in order; [] if the session has no main turn that the asker may access.

        Raises:
            StoreError: the score or discount is out of range, or the database failed.
        """
        check_score(score)
        if not 0 <= discount <= 1:
            raise StoreError(f"the discount must be between 0 and 1, not {discount}")
        turn = schema.turn.c
        query = (
            select(turn.id, turn.completion_id, turn.state)
            .where(turn.session_id == session_id, turn.turn_type == "main", *usable(asker))
            .order_by(turn.turn_index, turn.created_at)
            .with_for_update()
        )
        scored = (
            select(schema.feedback.c.turn_id)
            .join(schema.turn, turn.id == schema.feedback.c.turn_id)
            .where(turn.session_id == session_id)
            .where(schema.feedback.c.scope != SESSION, schema.feedback.c.score.is_not(None))
        )
        rewards = []
        with self._database.transaction() as connection:
            rows = connection.execute(query).mappings().all()
            has_own_score = set(connection.scalars(scored))
            for turns_after, row in zip(reversed(range(len(rows))), rows, strict=True):
                if row["id"] in has_own_score:
                    rewards.append(TurnReward(row["completion_id"], None, "own_score"))
                    continue
                part = score * discount**turns_after
                status = add_feedback(connection, row, part, "" if turns_after else text, SESSION)
                rewards.append(TurnReward(row["completion_id"], part, status))
        return rewards


def feedback_is_current(connection: Connection, turn_id: str, judgements: list[Judgement]) -> bool:
    """Returns whether these judgements include the latest feedback on the turn.

    An empty list, for a judge that gave up, is current if the turn was claimed after that feedback was stored.
    """
    feedback, turn = schema.feedback.c, schema.turn.c
    newest = connection.scalar(select(func.max(feedback.id)).where(feedback.turn_id == turn_id))
    if newest is None:
        return True
    if not judgements:
        return bool(connection.scalar(select(turn.judge_attempts).where(turn.id == turn_id)))
    return any(one.judge == USER_JUDGE and one.prompt == _name(newest) for one in judgements)


def _name(feedback_id: int) -> str:
    return f"feedback-{feedback_id}"


def check_score(score: float | None) -> None:
    """Raises StoreError for a score outside -1 to 1."""
    if score is not None and not -1 <= score <= 1:
        raise StoreError(f"a feedback score must be between -1 and 1, not {score}")


def _check(completion_id: str | None, session_id: str | None, score: float | None, text: str) -> None:
    if completion_id is None and session_id is None:
        raise StoreError("feedback needs a completion_id or a session_id")
    if score is None and not text:
        raise StoreError("feedback needs a score or a text")
    check_score(score)


def _select_turn(completion_id: str | None, session_id: str | None, asker: Asker) -> Select[tuple[str, ...]]:
    """Returns a query that selects and locks the turn to which feedback applies."""
    turn = schema.turn.c
    query = select(turn.id, turn.completion_id, turn.session_id, turn.state).with_for_update()
    query = query.where(*usable(asker))
    if completion_id is None:
        in_session = query.where(turn.session_id == session_id, turn.turn_type == "main")
        return in_session.order_by(turn.turn_index.desc(), turn.created_at.desc()).limit(1)
    query = query.where(turn.completion_id == completion_id)
    return query if session_id is None else query.where(turn.session_id == session_id)


def add_feedback(
    connection: Connection, turn: RowMapping, score: float | None, text: str, scope: str = "turn"
) -> Literal["judging", "waiting", "recorded"]:
    """Stores feedback on a turn, and makes the turn claimable if judging it can still have an effect. Returns the
    `status` of `Feedback`.

    Args:
        turn: row with `id` and `state`.
    """
    is_new = _insert(connection, turn["id"], score, text, scope)
    return _apply(connection, turn, score, is_new)


def _insert(connection: Connection, turn_id: str, score: float | None, text: str, scope: str) -> bool:
    """Stores feedback. Returns False without storing it if it equals the last feedback on the turn."""
    table = schema.feedback
    last = connection.execute(
        select(table.c.score, table.c.text, table.c.scope)
        .where(table.c.turn_id == turn_id)
        .order_by(table.c.id.desc())
        .limit(1)
    ).first()
    if last is not None and (last.score, last.scope, unpack_json(last.text)) == (score, scope, text):
        return False
    row = {"turn_id": turn_id, "score": score, "text": pack_json(text), "scope": scope}
    connection.execute(insert(table), row | {"created_at": time.time()})
    return True


def _apply(
    connection: Connection, turn: RowMapping, score: float | None, is_new: bool
) -> Literal["judging", "waiting", "recorded"]:
    """Makes the turn claimable if judging it can still change its sample. Returns the `status` of `Feedback`."""
    state = TurnState(turn["state"])
    has_no_next_state = state in (TurnState.CAPTURED, TurnState.EXPIRED, TurnState.IMPORTED)
    if has_no_next_state and score is None:
        return "recorded" if state is TurnState.EXPIRED else "waiting"
    if state is TurnState.JUDGED:
        if not is_new or not _withdraw_sample(connection, turn["id"]):
            return "recorded"
    elif not has_no_next_state and state is not TurnState.ANSWERED:
        return "recorded"
    if is_new:
        _reopen(connection, turn["id"], state)
    return "judging"


def _withdraw_sample(connection: Connection, turn_id: str) -> bool:
    """Deletes the judgement and the sample of a turn.

    Returns False and changes nothing if the sample is leased or trained, or was deleted together with a preference:
    another judgement would restore that preference.
    """
    sample, judgement, training = schema.sample, schema.judgement, schema.training
    query = select(sample.c.id, sample.c.state).where(sample.c.turn_id == turn_id).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None or row.state not in _REJUDGED:
        return False
    connection.execute(delete(training).where(training.c.sample_id == row.id))
    connection.execute(delete(schema.token_record).where(schema.token_record.c.sample_id == row.id))
    connection.execute(delete(sample).where(sample.c.turn_id == turn_id))
    connection.execute(delete(judgement).where(judgement.c.turn_id == turn_id))
    return True


def _reopen(connection: Connection, turn_id: str, state: TurnState) -> None:
    values: dict[str, Any] = {
        "state": str(TurnState.ANSWERED),
        "claimed_by": None,
        "claimed_until": None,
        "judge_attempts": 0,
    }
    if state is not TurnState.ANSWERED:
        values |= {"answered_at": time.time(), "judged_at": None, "state_reason": None}
    connection.execute(update(schema.turn).where(schema.turn.c.id == turn_id).values(values))


class JudgementTable:
    """Judgements, and the claims of judge workers: answered -> judged.

    A turn whose claim has expired can be claimed by another worker.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def answered_count(self) -> int:
        """Returns the number of answered turns without a judgement, including claimed ones."""
        with self._database.reading() as connection:
            query = select(func.count()).where(schema.turn.c.state == str(TurnState.ANSWERED))
            return connection.scalar(query) or 0

    def claim(self, worker: str, limit: int, claim_seconds: float) -> list[Turn]:
        """Claims up to `limit` answered turns for `claim_seconds`, and returns them, oldest first.

        Until the claim ends, no other worker can claim the turn.
        """
        turn = schema.turn.c
        claimable = (
            select(turn.id)
            .where(*_is_claimable(time.time(), claim_seconds))
            .order_by(turn.answered_at)
            .limit(limit)
        )
        with self._database.reading() as connection:
            if connection.execute(claimable.limit(1)).first() is None:
                return []
        with self._database.transaction() as connection:
            ids = list(connection.scalars(claimable.with_for_update(skip_locked=True)))
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
        """Releases a claimed turn.

        Args:
            retry_after: seconds until the turn can be claimed again.
            was_try: whether the claim counts as an attempt to judge.
            reason: why the turn is not judged yet; shown to people until it is judged.
        """
        turn = schema.turn.c
        released = {"claimed_by": None, "claimed_until": time.time() + retry_after if retry_after else None}
        attempts = turn.judge_attempts if was_try else turn.judge_attempts - 1
        with self._database.transaction() as connection:
            connection.execute(
                update(schema.turn)
                .where(turn.id == turn_id, turn.state == str(TurnState.ANSWERED))
                .values(**released, judge_attempts=attempts, state_reason=reason[:REASON_CHARS] or None)
            )

    def release_claims_of(self, worker: str) -> int:
        """Releases all claims of a worker that has died or is starting. Returns their number."""
        with self._database.transaction() as connection:
            claimed = update(schema.turn).where(
                schema.turn.c.state == str(TurnState.ANSWERED), schema.turn.c.claimed_by == worker
            )
            return connection.execute(claimed.values(claimed_by=None, claimed_until=None)).rowcount

    def finish(self, turn_id: str, judgements: list[Judgement], outcome: SampleDraft | Drop) -> bool:
        """Stores the judgements of a turn, and its sample or drop, in one transaction.

        Returns False and changes nothing if another worker has judged the turn, the turn was deleted, or there is
        newer feedback on it (then it can be claimed again).

        Raises:
            StoreError: the turn has no next state yet, or the sample does not fit the turn.
        """
        now = time.time()
        with self._database.transaction() as connection:
            query = select(schema.turn.c.state).where(schema.turn.c.id == turn_id).with_for_update()
            state = connection.scalar(query)
            if state is None or state == TurnState.JUDGED:
                return False
            check_turn(turn_id, state, TurnState.JUDGED)
            if not feedback_is_current(connection, turn_id, judgements):
                return False
            if isinstance(outcome, SampleDraft):
                _check_draft(connection, turn_id, outcome)
            for judgement in judgements:
                connection.execute(insert(schema.judgement), judgement_row(turn_id, judgement, now))
            # preferences from an earlier judgement of this turn
            connection.execute(delete(schema.memory).where(schema.memory.c.turn_id == turn_id))
            if hints := [hint for one in judgements if one.kind == "hint" for hint in one.hints]:
                remember(connection, turn_id, hints, now)
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
        """Returns the judgements of a turn, in the order in which they were stored."""
        table = schema.judgement
        with self._database.reading() as connection:
            rows = connection.execute(
                select(table).where(table.c.turn_id == turn_id).order_by(table.c.id)
            ).mappings()
            return [judgement_from_row(row) for row in rows]

    def newest_number(self, turn_ids: Sequence[str] | None = None) -> int:
        """Returns the row id of the newest judgement of these turns (None: of all); 0 if there is none. Row ids grow
        with time."""
        judgement = schema.judgement.c
        with self._database.reading() as connection:
            if turn_ids is None:
                return connection.scalar(select(func.max(judgement.id))) or 0
            newest = (
                connection.scalar(select(func.max(judgement.id)).where(judgement.turn_id.in_(ids)))
                for ids in slices(list(turn_ids))
            )
            return max((one or 0 for one in newest), default=0)


def _is_claimable(now: float, claim_seconds: float) -> tuple[ColumnElement[bool], ...]:
    """Returns the SQL conditions for an answered turn without a valid claim. A claim that ends too far in the future is
    not valid: the clock was set back after it was made."""
    until, longest = schema.turn.c.claimed_until, max(claim_seconds, _LONGEST_RETRY_SECONDS)
    return (
        schema.turn.c.state == str(TurnState.ANSWERED),
        or_(until.is_(None), until < now, until > now + longest),
    )


def _check_draft(connection: Connection, turn_id: str, draft: SampleDraft) -> None:
    if draft.turn_id != turn_id:
        raise StoreError(f"turn {turn_id}: the sample belongs to another turn, {draft.turn_id}")
    rewards = draft.reward.values() if isinstance(draft.reward, dict) else [draft.reward]
    if not all(math.isfinite(value) for value in rewards):
        raise StoreError(f"turn {turn_id}: the reward {draft.reward} is not a finite number")
    body = schema.turn_body.c
    packed = connection.scalar(select(body.completion_ids).where(body.turn_id == turn_id))
    completion = unpack_ids(packed or b"")
    if not mask_fits(draft.loss_mask, completion):
        raise StoreError(
            f"turn {turn_id}: the loss mask must have {len(completion)} values, each 0 or 1,"
            " one for each token of the answer"
        )
    _check_teacher(turn_id, draft, completion)


def _check_teacher(turn_id: str, draft: SampleDraft, completion: list[int]) -> None:
    length = len(completion)
    for ids in draft.teacher_tokens_candidates or []:
        if len(ids) <= length or ids[len(ids) - length :] != completion:
            raise StoreError(
                f"turn {turn_id}: teacher_tokens_candidates must be a prompt followed by the {length} ids of the answer"
            )
    log_probs, indices = draft.teacher_topk_log_probs, draft.teacher_topk_indices
    for values in (draft.teacher_log_probs, log_probs, indices):
        if values is not None and len(values) != length:
            raise StoreError(
                f"turn {turn_id}: the teacher has {len(values)} log-probs or top-k rows for an answer of {length} tokens"
            )
    if [len(row) for row in log_probs or []] != [len(row) for row in indices or []]:
        raise StoreError(
            f"turn {turn_id}: teacher_topk_indices and teacher_topk_log_probs must have the same shape"
        )


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
