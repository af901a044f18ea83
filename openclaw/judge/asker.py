"""Collects the judgements of one turn: feedback of people first, then the judge for what is missing, score and hints
at the same time."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from dataclasses import dataclass

from openclaw.errors import JudgeError
from openclaw.judge.backends.base import JudgeBackend
from openclaw.judge.hints import find_hints
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion, question_about
from openclaw.judge.votes import majority_score
from openclaw.methods.method import Needs
from openclaw.store import RolloutStore
from openclaw.types import ENVIRONMENT, Judgement, Turn


@dataclass(frozen=True, kw_only=True)
class JudgeLimits:
    """votes a turn; the share of them a majority needs (0 to 1); seconds for all votes of a turn; tries a
    turn; characters of the longest hint."""

    votes: int = 1
    threshold: float = 0.0
    timeout: float = 60.0
    attempts: int = 3
    hint_max_chars: int = 2000


class Asker:
    """Finds the judgements that a method needs."""

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
        """Score before hints, the judge's before a person's. The judge is asked only for what the method needs and
        feedback does not give, and never about a turn of an environment. Raises TimeoutError, and what the backend
        raises."""
        said = [
            self._capped(one) for one in await asyncio.to_thread(self._store.feedback.judgements_of, turn.id)
        ]
        if turn.source == ENVIRONMENT:
            return said
        kinds = {judgement.kind for judgement in said}
        question, asked = question_about(turn), []
        if self._needs.eval and "eval" not in kinds:
            asked.append(self._eval(question))
        if self._needs.hint and "hint" not in kinds:
            asked.append(self._hint(question))
        async with asyncio.timeout(self._limits.timeout):
            found = await asyncio.gather(*asked, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        given = [one for one in found if isinstance(one, Judgement)]
        return sorted([*given, *said], key=lambda judgement: judgement.kind)

    async def _eval(self, question: JudgeQuestion) -> Judgement:
        """Raises JudgeError when no vote is valid."""
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
        """Votes that say nothing valid are no hint."""
        started = time.monotonic()
        votes = await self._backend.hint_votes(question, self._limits.votes)
        found = find_hints(votes, self._limits.hint_max_chars)
        self._metrics.hinted(found)
        return Judgement(
            kind="hint", score=found.score, votes=votes, judge=self._backend.name,
            prompt=self._backend.hint_prompt_name, hints=found.hints, latency=time.monotonic() - started,
        )  # fmt: skip

    def _capped(self, said: Judgement) -> Judgement:
        """A person's hint may be short, but not an essay either."""
        hints = [hint for hint in said.hints if len(hint) <= self._limits.hint_max_chars]
        return said if len(hints) == len(said.hints) else dataclasses.replace(said, hints=hints)
