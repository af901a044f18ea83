"""Feedback of people on turns and sessions: stored verbatim, and used as a judgement that overrides the judge."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, Select, delete, func, insert, select, update

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.rows import pack_json, unpack_json
from openclaw.types import Feedback, Judgement, SampleState, TurnState, Vote

USER_JUDGE = "user"
"""`judge` of a judgement that a person gave."""

SESSION = "session"
"""`scope` of a turn's part of its session's reward."""
_REJUDGED = (SampleState.READY, SampleState.DROPPED)


@dataclass(frozen=True)
class TurnReward:
    """A turn's part of the reward of its session, and what became of it (see Feedback); own_score: it
    keeps the one it has."""

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
    ) -> Feedback | None:
        """Store a person's feedback on a turn. None, and no change, when there is no such turn.

        With a score the turn is judged by it at once: a turn that nothing followed too, and one that was
        judged already as long as its sample is neither leased nor trained. The same feedback twice in a row is
        one. Of several scores the last one counts; every text is a hint.

        Args:
            completion_id: the answer that is meant; else `session_id`: its last main turn.
            score: -1 (bad) to 1 (good); None when there is only a text.
            text: what should have been different, in the person's words.

        Raises:
            StoreError: neither id given, or neither score nor text, or a score outside -1 to 1.
        """
        _check(completion_id, session_id, score, text)
        with self._database.transaction() as connection:
            turn = connection.execute(_meant(completion_id, session_id)).mappings().first()
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
        """The feedback on a turn as judgements: an `eval` if there is a score, then a `hint`
        with every text. Empty without feedback."""
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
        person: str | None = None,
    ) -> list[TurnReward]:
        """Give the main turn that is k main turns before the session's last one the score times discount ** k.

        Each turn's part is feedback on it (see `record`), given in one transaction. A turn that has a score of
        its own keeps that; an earlier reward of the session is replaced. The text, a hint, goes to the last turn alone.

        Args:
            score: -1 (bad) to 1 (good).
            discount: 0 to 1; 1 gives every turn the whole score, 0 all of it to the last.
            person: only turns of theirs, or of nobody known, are rewarded; None: all.

        Returns:
            The turns in order; [] when the session has no main turn.

        Raises:
            StoreError: a score or discount out of its range, or the database failed.
        """
        check_score(score)
        if not 0 <= discount <= 1:
            raise StoreError(f"a discount lies between 0 and 1, not {discount}")
        turn = schema.turn.c
        query = (
            select(turn.id, turn.completion_id, turn.state, turn.person)
            .where(turn.session_id == session_id, turn.turn_type == "main")
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
                if person is not None and row["person"] not in (None, person):
                    continue
                if row["id"] in keeps:
                    rewards.append(TurnReward(row["completion_id"], None, "own_score"))
                    continue
                part = score * discount**after
                status = say(connection, row, part, "" if after else text, SESSION)
                rewards.append(TurnReward(row["completion_id"], part, status))
        return rewards


def feedback_is_current(connection: Connection, turn_id: str, judgements: list[Judgement]) -> bool:
    """Whether these judgements include the latest feedback on the turn.

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
    """Raises StoreError for a score that no turn can have."""
    if score is not None and not -1 <= score <= 1:
        raise StoreError(f"a feedback score lies between -1 and 1, not {score}")


def _check(completion_id: str | None, session_id: str | None, score: float | None, text: str) -> None:
    if completion_id is None and session_id is None:
        raise StoreError("feedback needs a completion id or a session id")
    if score is None and not text:
        raise StoreError("feedback needs a score or a text")
    check_score(score)


def _meant(completion_id: str | None, session_id: str | None) -> Select[tuple[str, ...]]:
    """The turn that the feedback is about, locked."""
    turn = schema.turn.c
    query = select(turn.id, turn.completion_id, turn.session_id, turn.state).with_for_update()
    if completion_id is None:
        mine = query.where(turn.session_id == session_id, turn.turn_type == "main")
        return mine.order_by(turn.turn_index.desc(), turn.created_at.desc()).limit(1)
    query = query.where(turn.completion_id == completion_id)
    return query if session_id is None else query.where(turn.session_id == session_id)


def say(
    connection: Connection, turn: RowMapping, score: float | None, text: str, scope: str = "turn"
) -> Literal["judging", "waiting", "recorded"]:
    """Store feedback on a turn (`id`, `state`) and make the turn free for a judge, where that still changes something."""
    return _apply(connection, turn, score, new=_insert(connection, turn["id"], score, text, scope))


def _insert(connection: Connection, turn_id: str, score: float | None, text: str, scope: str) -> bool:
    """False, and no change, when it equals the last feedback on the turn."""
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
    """Make the turn free for a judge, where that can still change what is trained."""
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
    """Take back the judgement of a turn. False, and no change, when its sample is leased or trained."""
    sample, judgement, training = schema.sample, schema.judgement, schema.training
    mine = select(sample.c.id, sample.c.state).where(sample.c.turn_id == turn_id).with_for_update()
    found = connection.execute(mine).one()
    if found.state not in _REJUDGED:
        return False
    connection.execute(delete(training).where(training.c.sample_id == found.id))
    connection.execute(delete(schema.token_record).where(schema.token_record.c.sample_id == found.id))
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
