"""One answered turn: ask the judge, ask the method, store both answers together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from openclaw.errors import JudgeError, StoreError
from openclaw.judge.backends import JudgeBackend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import question_about
from openclaw.judge.transport import JudgeUnavailable
from openclaw.judge.votes import majority_score
from openclaw.records import Drop, Judgement, SampleDraft, Turn
from openclaw.store import RolloutStore, StoreWriter

log = logging.getLogger("openclaw.judge")

Method = Callable[[Turn, list[Judgement]], SampleDraft | Drop]

_FIRST_RETRY_SECONDS = 0.5
_FIRST_RETURN_SECONDS = 5.0
"""First wait for a judge that is not there; every wait is twice the one before."""


@dataclass(frozen=True, kw_only=True)
class JudgeLimits:
    """votes a turn; the share of them a majority needs (0 to 1); seconds for all votes of a turn; tries a
    turn."""

    votes: int = 1
    threshold: float = 0.0
    timeout: float = 60.0
    attempts: int = 3


class TurnJudge:
    """Judges claimed turns. A turn it cannot judge is given back, and dropped (counted) after the last
    try."""

    def __init__(
        self,
        store: RolloutStore,
        writer: StoreWriter,
        backend: JudgeBackend,
        method: Method,
        limits: JudgeLimits,
        metrics: JudgeMetrics | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._backend = backend
        self._method = method
        self._limits = limits
        self._metrics = metrics or JudgeMetrics(backend.name)

    async def judge(self, turn: Turn) -> None:
        """Never raises for what a judge or a method does. Raises StoreError when the store cannot be
        written."""
        if turn.judge_attempts > self._limits.attempts:  # its judges died over it
            await self._drop(turn, [], "judge_error")
            return
        try:
            judgements = await self._judgements(turn)
        except Exception as error:  # whatever a backend does, it is data about this turn
            await self._failed(turn, error)
            return
        try:
            outcome = self._outcome(turn, judgements)
            await self._finish(turn, judgements, outcome)
        except Exception as error:  # a method that cannot handle the turn loses this turn only
            log.error("method failed turn=%s error=%s: %s", turn.id, type(error).__name__, error)
            await self._drop(turn, judgements, "method_error")

    async def _judgements(self, turn: Turn) -> list[Judgement]:
        """What people said about the turn; the backend is asked only where no person gave a score."""
        said = await asyncio.to_thread(self._store.feedback_judgements, turn.id)
        if any(judgement.kind == "eval" for judgement in said):
            return said
        return [await self._judgement(turn), *said]

    async def _judgement(self, turn: Turn) -> Judgement:
        limits, started = self._limits, time.monotonic()
        async with asyncio.timeout(limits.timeout):
            votes = await self._backend.eval_votes(question_about(turn), limits.votes)
        if not any(vote.score in (1, -1, 0) for vote in votes):
            raise JudgeError(f"none of {len(votes)} votes is valid")
        score, latency = majority_score(votes, limits.threshold), time.monotonic() - started
        self._metrics.judged(score, [vote.score for vote in votes], latency)
        return Judgement(
            kind="eval",
            score=score,
            votes=votes,
            judge=self._backend.name,
            prompt=self._backend.prompt_name,
            latency=latency,
        )

    def _outcome(self, turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
        outcome = self._method(turn, judgements)
        if not isinstance(outcome, SampleDraft | Drop):
            raise StoreError(f"the method gave a {type(outcome).__name__}, neither SampleDraft nor Drop")
        return outcome

    async def _failed(self, turn: Turn, error: Exception) -> None:
        self._metrics.failed(error)
        last = turn.judge_attempts >= self._limits.attempts
        log.warning(
            "judge failed turn=%s try=%d/%d error=%s: %s",
            turn.id,
            turn.judge_attempts,
            self._limits.attempts,
            type(error).__name__,
            error,
        )
        if last:
            await self._drop(turn, [], "judge_error")
            return
        first = _FIRST_RETURN_SECONDS if isinstance(error, JudgeUnavailable) else _FIRST_RETRY_SECONDS
        wait = first * 2 ** (turn.judge_attempts - 1)
        await self._writer.submit(lambda: self._store.release_claim(turn.id, retry_after=wait))

    async def _drop(self, turn: Turn, judgements: list[Judgement], reason: str) -> None:
        await self._finish(turn, judgements, Drop(reason))

    async def _finish(self, turn: Turn, judgements: list[Judgement], outcome: SampleDraft | Drop) -> None:
        stored = await self._writer.submit(lambda: self._store.finish_judgement(turn.id, judgements, outcome))
        score = judgements[0].score if judgements else None
        what = f"dropped:{outcome.reason}" if isinstance(outcome, Drop) else "ready"
        log.info("judged turn=%s score=%s sample=%s", turn.id, score, what if stored else "judged elsewhere")
