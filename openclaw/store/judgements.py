"""People's feedback and judges' judgements on turns.

Feedback is stored verbatim, and used as a judgement that overrides the judge. Judge workers claim answered turns;
judgement and sample (or counted drop) are stored together.
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
"""`scope` of feedback that is a turn's part of its session's reward."""
REASON_CHARS = 160
_LONGEST_RETURN_SECONDS = 600.0
"""Longest time in seconds until a released turn may be claimed again."""
_REJUDGED = (SampleState.READY, SampleState.DROPPED)


@dataclass(frozen=True)
class TurnReward:
    """A turn's part of its session's reward, and its state (see Feedback); own_score: it keeps its own score."""

    completion_id: str
    score: float | None
    status: Literal["judging", "waiting", "recorded", "own_score"]


class FeedbackTable:
    """Feedback on a turn (by completion, or the last main turn of a session), and rewards of whole sessions."""

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
        """Stores a person's feedback on a turn. Returns None and changes nothing if there is no such turn that the
        asker may access.

        A score judges the turn at once, even if it has no next state yet, or was judged already, as long as its
        sample is neither leased nor trained. Repeated equal feedback counts once. Of several scores the last one
        counts; every text is a hint.

        Args:
            completion_id: the answer; otherwise the last main turn of `session_id`.
            score: -1 (bad) to 1 (good); None when there is only a text.
            text: the requested change, in the person's words.

        Raises:
            StoreError: no id given, or neither score nor text, or a score outside -1 to 1.
        """
        _check(completion_id, session_id, score, text)
        with self._database.transaction() as connection:
            turn = connection.execute(_meant(completion_id, session_id, asker)).mappings().first()
            if turn is None:
                return None
            status = say(connection, turn, score, text)
        return Feedback(
            turn_id=turn["id"],
            completion_id=turn["completion_id"],
            session_id=turn["session_id"],
            status=status,
        )

    def judgements_of(self, turn_id: str) -> list[Judgement]:
        """Returns the feedback on a turn as judgements: an `eval` if there is a score, then a `hint` with all texts.
        Empty if there is no feedback."""
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
        """Gives the main turn that is k main turns before the session's last one the score times discount ** k.

        Each turn's part is stored as feedback on it (see `record`), all in one transaction. A turn with its own score
        keeps it; an earlier reward of the session is replaced. The text, a hint, applies only to the last turn.

        Args:
            score: -1 (bad) to 1 (good).
            discount: 0 to 1; 1 gives every turn the whole score, 0 all of it to the last.
            asker: turns that they may not access are ignored.

        Returns:
            The turns in order; [] when the session has no such main turn.

        Raises:
            StoreError: a score or discount out of its range, or the database failed.
        """
        check_score(score)
        if not 0 <= discount <= 1:
            raise StoreError(f"a discount must be between 0 and 1, not {discount}")
        turn = schema.turn.c
        query = (
            select(turn.id, turn.completion_id, turn.state)
            .where(turn.session_id == session_id, turn.turn_type == "main", *usable(asker))
            .order_by(turn.turn_index, turn.created_at)
            .with_for_update()
        )
        own = (
            select(schema.feedback.c.turn_id)
            .join(schema.turn, turn.id == schema.feedback.c.turn_id)
            .where(turn.session_id == session_id)
            .where(schema.feedback.c.scope != SESSION, schema.feedback.c.score.is_not(None))
        )
        rewards = []
        with self._database.transaction() as connection:
            rows = connection.execute(query).mappings().all()
            keeps = set(connection.scalars(own))
            for after, row in zip(reversed(range(len(rows))), rows, strict=True):
                if row["id"] in keeps:
                    rewards.append(TurnReward(row["completion_id"], None, "own_score"))
                    continue
                part = score * discount**after
                status = say(connection, row, part, "" if after else text, SESSION)
                rewards.append(TurnReward(row["completion_id"], part, status))
        return rewards


def feedback_is_current(connection: Connection, turn_id: str, judgements: list[Judgement]) -> bool:
    """Returns whether these judgements include the latest feedback on the turn.

    An empty list (the judge gave up) counts as current once the turn was claimed with that feedback in the store.
    """
    spoken, turn = schema.feedback.c, schema.turn.c
    newest = connection.scalar(select(func.max(spoken.id)).where(spoken.turn_id == turn_id))
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
        raise StoreError("feedback needs a completion id or a session id")
    if score is None and not text:
        raise StoreError("feedback needs a score or a text")
    check_score(score)


def _meant(completion_id: str | None, session_id: str | None, asker: Asker) -> Select[tuple[str, ...]]:
    """Selects and locks the turn that the feedback is about."""
    turn = schema.turn.c
    query = select(turn.id, turn.completion_id, turn.session_id, turn.state).with_for_update()
    query = query.where(*usable(asker))
    if completion_id is None:
        in_session = query.where(turn.session_id == session_id, turn.turn_type == "main")
        return in_session.order_by(turn.turn_index.desc(), turn.created_at.desc()).limit(1)
    query = query.where(turn.completion_id == completion_id)
    return query if session_id is None else query.where(turn.session_id == session_id)


def say(
    connection: Connection, turn: RowMapping, score: float | None, text: str, scope: str = "turn"
) -> Literal["judging", "waiting", "recorded"]:
    """Stores feedback on a turn (`id`, `state`) and makes the turn available to a judge, if that can still have an
    effect."""
    return _apply(connection, turn, score, new=_insert(connection, turn["id"], score, text, scope))


def _insert(connection: Connection, turn_id: str, score: float | None, text: str, scope: str) -> bool:
    """Stores feedback; returns False and changes nothing if it equals the last feedback on the turn."""
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
    connection: Connection, turn: RowMapping, score: float | None, new: bool
) -> Literal["judging", "waiting", "recorded"]:
    """Makes the turn available to a judge, if that can still change its samples."""
    state = TurnState(turn["state"])
    unfollowed = state in (TurnState.CAPTURED, TurnState.EXPIRED, TurnState.IMPORTED)
    if unfollowed and score is None:
        return "recorded" if state is TurnState.EXPIRED else "waiting"
    if state is TurnState.JUDGED:
        if not new or not _withdraw_sample(connection, turn["id"]):
            return "recorded"
    elif not unfollowed and state is not TurnState.ANSWERED:
        return "recorded"
    if new:
        _reopen(connection, turn["id"], state)
    return "judging"


def _withdraw_sample(connection: Connection, turn_id: str) -> bool:
    """Deletes the judgement of a turn. Returns False and changes nothing if its sample is leased or trained, or was
    deleted with a preference, which another judgement would find again."""
    sample, judgement, training = schema.sample, schema.judgement, schema.training
    own_sample = select(sample.c.id, sample.c.state).where(sample.c.turn_id == turn_id).with_for_update()
    own = connection.execute(own_sample).one_or_none()
    if own is None or own.state not in _REJUDGED:
        return False
    connection.execute(delete(training).where(training.c.sample_id == own.id))
    connection.execute(delete(schema.token_record).where(schema.token_record.c.sample_id == own.id))
    connection.execute(delete(sample).where(sample.c.turn_id == turn_id))
    connection.execute(delete(judgement).where(judgement.c.turn_id == turn_id))
    return True


def _reopen(connection: Connection, turn_id: str, state: TurnState) -> None:
    free: dict[str, Any] = {
        "state": str(TurnState.ANSWERED),
        "claimed_by": None,
        "claimed_until": None,
        "judge_attempts": 0,
    }
    if state is not TurnState.ANSWERED:
        free |= {"answered_at": time.time(), "judged_at": None, "state_reason": None}
    connection.execute(update(schema.turn).where(schema.turn.c.id == turn_id).values(free))


class JudgementTable:
    """answered -> judged. A claim that is not finished in time becomes available to the next worker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def answered_count(self) -> int:
        """Returns the number of turns that wait for a judgement, including claimed ones."""
        with self._database.reading() as connection:
            query = select(func.count()).where(schema.turn.c.state == str(TurnState.ANSWERED))
            return connection.scalar(query) or 0

    def claim(self, worker: str, limit: int, claim_seconds: float) -> list[Turn]:
        """Claims up to `limit` answered turns, oldest first, for `claim_seconds`. No turn is claimed by two
        workers."""
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
        """Releases a claimed turn; it can be claimed again in `retry_after` seconds. was_try False: the claim does
        not count as an attempt. `reason`: why it is not judged yet, shown to people until it is."""
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
        """Releases every turn claimed under this worker's name (the worker has died, or is just starting)."""
        with self._database.transaction() as connection:
            held = update(schema.turn).where(
                schema.turn.c.state == str(TurnState.ANSWERED), schema.turn.c.claimed_by == worker
            )
            return connection.execute(held.values(claimed_by=None, claimed_until=None)).rowcount

    def finish(self, turn_id: str, judgements: list[Judgement], outcome: SampleDraft | Drop) -> bool:
        """Stores judgements and the method's outcome in one transaction.

        Returns False and changes nothing if another worker has finished this turn, it was deleted, or there is newer
        feedback on it (the turn can then be claimed again). Raises StoreError if the turn is not answered, or the
        draft does not fit the turn.
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
            # removes what an earlier judgement of the turn added to the memory
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
        """Returns the judgements of a turn in the order in which they were stored."""
        table = schema.judgement
        with self._database.reading() as connection:
            rows = connection.execute(
                select(table).where(table.c.turn_id == turn_id).order_by(table.c.id)
            ).mappings()
            return [judgement_from_row(row) for row in rows]

    def newest_number(self, turn_ids: Sequence[str] | None = None) -> int:
        """Returns the number of the newest judgement, of all or of these turns; 0 if there is none. It grows with
        time."""
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
    """Returns conditions for an unclaimed waiting turn. A claim of impossible length is ignored: the clock was set
    back."""
    until, longest = schema.turn.c.claimed_until, max(claim_seconds, _LONGEST_RETURN_SECONDS)
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
        raise StoreError(f"turn {turn_id}: the loss mask is not {len(completion)} numbers of 0 or 1")
    _check_teacher(turn_id, draft, completion)


def _check_teacher(turn_id: str, draft: SampleDraft, completion: list[int]) -> None:
    length = len(completion)
    for ids in draft.teacher_tokens_candidates or []:
        if len(ids) <= length or ids[len(ids) - length :] != completion:
            raise StoreError(
                f"turn {turn_id}: the teacher's ids must be a prompt that ends with the {length} ids of the answer"
            )
    log_probs, indices = draft.teacher_topk_log_probs, draft.teacher_topk_indices
    for values in (draft.teacher_log_probs, log_probs, indices):
        if values is not None and len(values) != length:
            raise StoreError(
                f"turn {turn_id}: the teacher has {len(values)} log-probs or top-k ids for {length} ids of the answer"
            )
    if [len(row) for row in log_probs or []] != [len(row) for row in indices or []]:
        raise StoreError(
            f"turn {turn_id}: the teacher's top-k ids and their log-probs must have the same shape"
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
