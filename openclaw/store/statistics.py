"""Counts by state, read from covering indexes: cheap enough for every call of /status."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import func, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.types import SampleState, TurnState

_LOST_TURNS = (TurnState.EXPIRED, TurnState.UNTRAINABLE, TurnState.ABORTED)


class Statistics(Database):
    """How many turns and samples are where, and why some will never be trained."""

    def counts(self) -> dict[str, dict[str, int]]:
        """{"turns": {state: n}, "samples": {state: n}, "dropped": {reason: n}, "judge_failures": {reason: n}}.

        judge_failures: turns that wait for another try of their judge, by what the last one said.
        dropped: samples dropped by judge, method or trainer, and turns that ended without becoming a sample
        (expired, untrainable, aborted), by reason.
        """
        turn, sample = schema.turn.c, schema.sample.c
        turns: Counter[str] = Counter()
        samples: Counter[str] = Counter()
        dropped: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        with self.reading() as connection:
            of_turns = select(turn.state, turn.state_reason, func.count()).group_by(
                turn.state, turn.state_reason
            )
            for state, reason, n in connection.execute(of_turns):
                turns[state] += n
                if state in _LOST_TURNS:
                    dropped[reason or state] += n
                elif state == TurnState.ANSWERED and reason:
                    failures[reason] += n
            of_samples = select(sample.state, sample.reason, func.count()).group_by(
                sample.state, sample.reason
            )
            for state, reason, n in connection.execute(of_samples):
                samples[state] += n
                if state == SampleState.DROPPED:
                    dropped[reason or state] += n
        return {
            "turns": dict(turns),
            "samples": dict(samples),
            "dropped": dict(dropped),
            "judge_failures": dict(failures),
        }
