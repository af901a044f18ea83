"""Judges one answered turn: asks judge, method and teacher, and stores the results in one transaction.

The judgements are people's feedback, and the judge's votes for the missing ones; score and hints are requested at the
same time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from openclaw.errors import JudgeError, StoreError, StoreUnavailable
from openclaw.judge.backends.base import JudgeBackend
from openclaw.judge.backends.http import JudgeUnavailable
from openclaw.judge.hints import find_hints
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion, majority_score, question_about
from openclaw.methods.method import Method, MethodContext, Needs, eval_score, is_liked
from openclaw.store import RolloutStore, StoreWriter
from openclaw.types import ENVIRONMENT, UNSAMPLED, Drop, Judgement, SampleDraft, Turn


@dataclass(frozen=True, kw_only=True)
class JudgeLimits:
    """Limits: votes a turn; the share that a majority needs (0 to 1); seconds for all votes of a turn; attempts a
    turn; characters of the longest hint."""

    votes: int = 1
    threshold: float = 0.0
    timeout: float = 60.0
    attempts: int = 3
    hint_max_chars: int = 2000


class Asker:
    """Collects the judgements that a method needs."""

    def __init__(
        self,
        store: RolloutStore,
        backend: JudgeBackend,
        needs: Needs,
        limits: JudgeLimits,
        metrics: JudgeMetrics,
    ) -> None:
        self._store = store
        self._backend = backend
        self._needs = needs
        self._limits = limits
        self._metrics = metrics

    async def judgements(self, turn: Turn) -> list[Judgement]:
        """Returns scores before hints, the judge's before people's. The judge is asked only for what the method needs
        and feedback does not provide, and never about turns of an environment. Raises TimeoutError, and exceptions of
        the backend."""
        kept = [
            self._capped(one) for one in await asyncio.to_thread(self._store.feedback.judgements_of, turn.id)
        ]
        if turn.source == ENVIRONMENT:
            return without_praise(kept)
        kinds = {judgement.kind for judgement in kept}
        question, asked = question_about(turn), []
        if self._needs.eval and "eval" not in kinds:
            asked.append(self._eval(question))
        if self._needs.hint and "hint" not in kinds:
            asked.append(self._hint(question))
        async with asyncio.timeout(self._limits.timeout):
            results = await asyncio.gather(*asked, return_exceptions=True)
        for one in results:
            if isinstance(one, BaseException):
                raise one
        answers = [one for one in results if isinstance(one, Judgement)]
        return sorted(without_praise([*answers, *kept]), key=lambda judgement: judgement.kind)

    async def _eval(self, question: JudgeQuestion) -> Judgement:
        """Returns the score. Raises JudgeError if no vote is valid."""
        started = time.monotonic()
        votes = await self._backend.eval_votes(question, self._limits.votes)
        if not any(vote.score in (1, -1, 0) for vote in votes):
            raise JudgeError(f"none of {len(votes)} votes is valid")
        score, latency = majority_score(votes, self._limits.threshold), time.monotonic() - started
        self._metrics.judged(score, [vote.score for vote in votes], latency)
        return Judgement(
            kind="eval", score=score, votes=votes, judge=self._backend.name, prompt=self._backend.prompt_name,
            latency=latency,
        )  # fmt: skip

    async def _hint(self, question: JudgeQuestion) -> Judgement:
        """Returns the hints of the votes; invalid votes give no hint."""
        started = time.monotonic()
        votes = await self._backend.hint_votes(question, self._limits.votes)
        hints = find_hints(votes, self._limits.hint_max_chars)
        self._metrics.hinted(hints)
        return Judgement(
            kind="hint", score=hints.score, votes=votes, judge=self._backend.name,
            prompt=self._backend.hint_prompt_name, hints=hints.hints, latency=time.monotonic() - started,
        )  # fmt: skip

    def _capped(self, judgement: Judgement) -> Judgement:
        """Limits the length of a person's hint; it may be short."""
        hints = [hint for hint in judgement.hints if len(hint) <= self._limits.hint_max_chars]
        return (
            judgement if len(hints) == len(judgement.hints) else dataclasses.replace(judgement, hints=hints)
        )


def without_praise(judgements: list[Judgement]) -> list[Judgement]:
    """Returns the judgements of a turn; for a liked turn without hints, so that praise does not become a
    preference."""
    if not is_liked(judgements):
        return judgements
    return [dataclasses.replace(one, hints=[]) if one.hints else one for one in judgements]


def taught_alone(outcome: SampleDraft | Drop, judgements: list[Judgement], reason: str) -> SampleDraft | Drop:
    """Returns the sample of an answer that the policy did not sample, marked to be trained only by its hints; a drop
    with the `reason` if it has no hint."""
    if isinstance(outcome, Drop) or not outcome.teacher_tokens_candidates:
        return Drop(reason)
    score = eval_score(judgements)
    known = {UNSAMPLED: reason} if score is None else {UNSAMPLED: reason, "eval_score": score}
    return dataclasses.replace(outcome, metadata={**outcome.metadata, **known})


log = logging.getLogger("openclaw.judge")

_FIRST_RETRY_SECONDS = 0.5
_FIRST_RETURN_SECONDS = 5.0
"""First pause in seconds if a judge cannot be reached; it doubles each time."""
_DOWN_SECONDS = 60.0
"""Seconds without an answer after which a judge counts as down. Its failures then do not count as a turn's
attempts."""


class TeacherOnEngine(Protocol):
    """Adds a teacher's log-probs to a sample. Raises JudgeError if it cannot."""

    async def taught(self, turn: Turn, draft: SampleDraft) -> SampleDraft: ...


_OTHERS_FIRST = 4
"""Number of pauses after which a turn that found the judge down is tried again, so that other turns are tried
first."""


class Presence:
    """Whether a judge or a teacher is reachable; unknown until its first answer."""

    def __init__(self) -> None:
        self._answered: float | None = None
        self.rests_until = 0.0
        """Time (time.monotonic, seconds) before which no request is sent."""

    def is_there(self) -> None:
        """Records that it answered."""
        self._answered, self.rests_until = time.monotonic(), 0.0

    def is_down(self, error: Exception) -> bool:
        """Returns whether this error means that it is down."""
        if not isinstance(error, JudgeUnavailable):
            return False
        now = time.monotonic()
        if self._answered is not None and now - self._answered < _DOWN_SECONDS:
            return False
        self.rests_until = now + _FIRST_RETURN_SECONDS
        return True


class TurnJudge:
    """Judges claimed turns. A turn that it cannot judge is released, and dropped (counted) after the last attempt.

    Args:
        method: makes samples; any function of (turn, judgements[, context]).
        context: further context of the method.
        teacher: adds log-probs to samples that need a teacher; None: the trainer runs the teacher, or there is none.
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
        self._presence, self._teacher_presence = Presence(), Presence()
        needs = self._method.needs(self._context.options)
        self._asker = Asker(store, backend, needs, limits, self._metrics)

    @property
    def rests_until(self) -> float:
        """Returns the time (time.monotonic) until which no turn can be judged."""
        return max(self._presence.rests_until, self._teacher_presence.rests_until)

    async def judge(self, turn: Turn) -> None:
        """Never raises exceptions of a judge or a method. Raises StoreUnavailable if the store cannot be written; the
        turn's claim then expires."""
        if turn.judge_attempts > self._limits.attempts:  # earlier workers died while judging it
            await self._drop(turn, [], "judge_error")
            return
        try:
            judgements = await self._asker.judgements(turn)
        except Exception as error:  # any failure of a backend is recorded for this turn
            await self._failed(turn, error)
            return
        self._presence.is_there()
        try:
            made = self._made_sample(turn, judgements)
            outcome = await self._taught(turn, made) if isinstance(made, SampleDraft) else made
            if outcome is not None:
                await self._finish(turn, judgements, outcome)
        except StoreUnavailable:  # not the fault of judge or method: the turn is judged again later
            raise
        except Exception as error:  # a method that fails on the turn loses only this turn
            log.error("method failed turn=%s error=%s: %s", turn.id, type(error).__name__, error)
            await self._drop(turn, judgements, "method_error")

    def _made_sample(self, turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
        reason = turn.unsampled
        kept = [one for one in judgements if reason is None or one.kind != "eval"]
        outcome = self._method.function(turn, kept, self._context)
        self._metrics.unplaced_hints = self._context.unplaced_hints
        if not isinstance(outcome, SampleDraft | Drop):
            raise StoreError(f"the method returned a {type(outcome).__name__}, neither SampleDraft nor Drop")
        return outcome if reason is None else taught_alone(outcome, judgements, reason)

    async def _taught(self, turn: Turn, draft: SampleDraft) -> SampleDraft | Drop | None:
        """Returns the draft with its teacher's log-probs; a drop if the teacher fails, or the turn has pictures, which it
        does not read; None if it is unreachable and the turn was released."""
        if self._teacher is None:
            return draft
        if turn.pictures:
            return Drop("pictures")
        try:
            async with asyncio.timeout(self._limits.timeout):
                taught = await self._teacher.taught(turn, draft)
        except (JudgeError, TimeoutError) as error:
            self._metrics.teacher_failures[type(error).__name__] += 1
            self._warn("teacher failed", turn, error)
            down = self._teacher_presence.is_down(error)
            passing = isinstance(error, JudgeUnavailable) and turn.judge_attempts < self._limits.attempts
            if not (down or passing):
                return Drop("teacher_failed")
            await self._give_back(turn, error, down)
            return None
        self._teacher_presence.is_there()
        return taught

    async def _failed(self, turn: Turn, error: Exception) -> None:
        self._metrics.failed(error)
        self._warn("judge failed", turn, error)
        down = self._presence.is_down(error)
        if turn.judge_attempts >= self._limits.attempts and not down:
            await self._drop(turn, [], "judge_error")
        else:
            await self._give_back(turn, error, down)

    def _warn(self, what: str, turn: Turn, error: Exception) -> None:
        tries = f"{turn.judge_attempts}/{self._limits.attempts}"
        log.warning("%s turn=%s try=%s error=%s: %s", what, turn.id, tries, type(error).__name__, error)

    async def _give_back(self, turn: Turn, error: Exception, down: bool) -> None:
        first = _FIRST_RETURN_SECONDS if isinstance(error, JudgeUnavailable) else _FIRST_RETRY_SECONDS
        wait = first * (_OTHERS_FIRST if down else 2 ** (turn.judge_attempts - 1))
        reason = (str(error) or type(error).__name__).splitlines()[0]
        await self._writer.submit(
            lambda: self._store.judgements.release_claim(turn.id, wait, was_try=not down, reason=reason)
        )

    async def _drop(self, turn: Turn, judgements: list[Judgement], reason: str) -> None:
        await self._finish(turn, judgements, Drop(reason))

    async def _finish(self, turn: Turn, judgements: list[Judgement], outcome: SampleDraft | Drop) -> None:
        stored = await self._writer.submit(
            lambda: self._store.judgements.finish(turn.id, judgements, outcome)
        )
        score = judgements[0].score if judgements else None
        what = f"dropped:{outcome.reason}" if isinstance(outcome, Drop) else "ready"
        log.info("judged turn=%s score=%s sample=%s", turn.id, score, what if stored else "judged elsewhere")
