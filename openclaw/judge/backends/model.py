"""A judge that is a language model: m votes are m requests with different seeds; equal questions are asked once."""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable

from openclaw.common.messages import last_user_text
from openclaw.errors import JudgeError
from openclaw.judge.backends.http import JudgeUnavailable
from openclaw.judge.backends.prompts import Asked, Prompt, PromptSet
from openclaw.judge.backends.votes import Reply, read_eval_vote, read_hint_vote
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.types import Vote


class ModelBackend(ABC):
    """Votes by a language model. A subclass requests one reply.

    Args:
        name: stored with each judgement.
        prompts: wording of the questions.
        metrics: counts requests and cache hits.
        cache_size: number of answered questions to keep; the least recently asked one is dropped first.
    """

    def __init__(self, name: str, prompts: PromptSet, metrics: JudgeMetrics, cache_size: int) -> None:
        self.name = name
        self._prompts = prompts
        self._metrics = metrics
        self._cache_size = cache_size
        self._cache: OrderedDict[bytes, list[Vote]] = OrderedDict()

    @property
    def prompt_name(self) -> str:
        return self._prompts.eval.name

    @property
    def hint_prompt_name(self) -> str:
        return self._prompts.hint.name

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        """Returns m votes; one whose request failed has no score. Raises JudgeError if every request failed."""
        return await self._votes(self._prompts.eval, lambda reply, mark: read_eval_vote(reply), question, m)

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        """Returns m votes on whether the next state contains a hint, with the hint. Raises as `eval_votes`."""
        return await self._votes(self._prompts.hint, read_hint_vote, question, m)

    @abstractmethod
    async def reply(self, asked: Asked, seed: int) -> Reply:
        """Returns the model's reply. Raises JudgeError."""

    @abstractmethod
    async def close(self) -> None:
        """Closes connections."""

    async def _votes(
        self, prompt: Prompt, read: Callable[[Reply, str], Vote], question: JudgeQuestion, m: int
    ) -> list[Vote]:
        shown = [last_user_text(question.messages), question.role, question.response, question.next_text]
        key = hashlib.blake2b(json.dumps([prompt.name, m, *shown]).encode(), digest_size=16).digest()
        known = self._cache.get(key)
        if known is not None:
            self._cache.move_to_end(key)
            self._metrics.cache_hits += 1
            return known
        asked = Asked(prompt, question)
        replies = await asyncio.gather(
            *(self.reply(asked, seed) for seed in range(m)), return_exceptions=True
        )
        votes = _read_all(replies, lambda reply: read(reply, asked.mark))
        if all(vote.score is not None for vote in votes):
            self._cache[key] = votes
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return votes


def _read_all(replies: list[Reply | BaseException], read: Callable[[Reply], Vote]) -> list[Vote]:
    """Returns one vote for each reply. If all failed, raises one of their errors, JudgeUnavailable before others."""
    errors = [reply for reply in replies if isinstance(reply, BaseException)]
    for error in errors:
        if not isinstance(error, JudgeError):
            raise error
    if len(errors) == len(replies):
        raise next((error for error in errors if isinstance(error, JudgeUnavailable)), errors[0])
    return [
        read(reply) if isinstance(reply, Reply) else Vote(score=None, text=f"no reply: {reply}")
        for reply in replies
    ]
