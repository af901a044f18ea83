"""One answered turn: ask the judge, ask the method, ask its teacher, store the answers together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from openclaw.errors import JudgeError, StoreError, StoreUnavailable
from openclaw.judge.asking import Asker, JudgeLimits
from openclaw.judge.backends import JudgeBackend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.transport import JudgeUnavailable
from openclaw.methods import Method, MethodContext
from openclaw.records import Drop, Judgement, SampleDraft, Turn
from openclaw.store import RolloutStore, StoreWriter

log = logging.getLogger("openclaw.judge")

_FIRST_RETRY_SECONDS = 0.5
_FIRST_RETURN_SECONDS = 5.0
"""First wait for a judge that is not there; every wait is twice the one before."""


class TeacherOnEngine(Protocol):
    """Fills a teacher's log-probs into a sample. Raises JudgeError when it cannot."""

    async def taught(self, turn: Turn, draft: SampleDraft) -> SampleDraft: ...


class TurnJudge:
    """Judges claimed turns. A turn it cannot judge is given back, and dropped (counted) after the last
    try.

    Args:
        method: makes samples; any function of (turn, judgements[, context]).
        context: what the method may use besides.
        teacher: asked for the log-probs of samples that want one; None: the trainer has the teacher, or nobody.
    """

    def __init__(
        self,
        store: RolloutStore,
        writer: StoreWriter,
        backend: JudgeBackend,
        method: Method | Callable[..., Any],
        limits: JudgeLimits,
        metrics: JudgeMetrics | None = None,
        context: MethodContext | None = None,
        teacher: TeacherOnEngine | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._method = method if isinstance(method, Method) else Method.of(method)
        self._limits = limits
        self._metrics = metrics or JudgeMetrics(backend.name)
        self._context = context or MethodContext()
        self._teacher = teacher
        needs = self._method.needs(self._context.options)
        self._asker = Asker(store, backend, needs, limits, self._metrics)

    async def judge(self, turn: Turn) -> None:
        """Never raises for what a judge or a method does. Raises StoreUnavailable when the store cannot be
        written: the turn's claim runs out then."""
        if turn.judge_attempts > self._limits.attempts:  # its judges died over it
            await self._drop(turn, [], "judge_error")
            return
        try:
            judgements = await self._asker.judgements(turn)
        except Exception as error:  # whatever a backend does, it is data about this turn
            await self._failed(turn, error)
            return
        try:
            made = self._made_sample(turn, judgements)
            outcome = await self._taught(turn, made) if isinstance(made, SampleDraft) else made
            if outcome is not None:
                await self._finish(turn, judgements, outcome)
        except StoreUnavailable:  # neither judge nor method is to blame: the turn is judged again later
            raise
        except Exception as error:  # a method that cannot handle the turn loses this turn only
            log.error("method failed turn=%s error=%s: %s", turn.id, type(error).__name__, error)
            await self._drop(turn, judgements, "method_error")

    def _made_sample(self, turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
        outcome = self._method.function(turn, judgements, self._context)
        self._metrics.unplaced_hints = self._context.unplaced_hints
        if not isinstance(outcome, SampleDraft | Drop):
            raise StoreError(f"the method gave a {type(outcome).__name__}, neither SampleDraft nor Drop")
        return outcome

    async def _taught(self, turn: Turn, draft: SampleDraft) -> SampleDraft | Drop | None:
        """The draft with its teacher's log-probs; a drop when the teacher fails; None when it is not there and the
        turn was given back."""
        if self._teacher is None:
            return draft
        try:
            async with asyncio.timeout(self._limits.timeout):
                return await self._teacher.taught(turn, draft)
        except (JudgeError, TimeoutError) as error:
            self._metrics.teacher_failures[type(error).__name__] += 1
            self._warn("teacher failed", turn, error)
            if not isinstance(error, JudgeUnavailable) or turn.judge_attempts >= self._limits.attempts:
                return Drop("teacher_failed")
            await self._give_back(turn, error)
            return None

    async def _failed(self, turn: Turn, error: Exception) -> None:
        self._metrics.failed(error)
        self._warn("judge failed", turn, error)
        if turn.judge_attempts >= self._limits.attempts:
            await self._drop(turn, [], "judge_error")
        else:
            await self._give_back(turn, error)

    def _warn(self, what: str, turn: Turn, error: Exception) -> None:
        tries = f"{turn.judge_attempts}/{self._limits.attempts}"
        log.warning("%s turn=%s try=%s error=%s: %s", what, turn.id, tries, type(error).__name__, error)

    async def _give_back(self, turn: Turn, error: Exception) -> None:
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
