"""The reward of a whole session: spread over its turns, which keep what was said about them alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.feedback import check_score, say

SESSION = "session"
"""`scope` of a turn's part of its session's reward."""


@dataclass(frozen=True)
class TurnReward:
    """A turn's part of the reward of its session, and what became of it (see Feedback); own_score: it
    keeps the one it has."""

    completion_id: str
    score: float | None
    status: Literal["judging", "waiting", "recorded", "own_score"]


class SessionRewardTable(Database):
    """Rewards of sessions."""

    def reward_session(
        self,
        session_id: str,
        score: float,
        text: str = "",
        discount: float = 1.0,
        person: str | None = None,
    ) -> list[TurnReward]:
        """Give the main turn that is k main turns before the session's last one the score times discount ** k.

        Each turn's part is feedback on it (see `record_feedback`), given in one transaction. A turn that has a score of
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
        with self.transaction() as connection:
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
