"""Obtains from the served model the likelihood of a reply under each class."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from openclaw.engine.client import EngineClient
from openclaw.errors import ClientError, EngineError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.judge.reader.channel import Reading, kinds, pairs, read, read_both

log = logging.getLogger("openclaw.judge")

LEAST_RIGHT = 0.75
"""Share of the check examples that a model must classify correctly. A random guess among nine classes is right in one
of nine."""
AGAIN_SECONDS = 60.0
"""Seconds to wait after an engine did not answer."""
READY_SECONDS = 30.0
"""Longest wait for an engine in seconds."""
READING_SECONDS = 45.0
"""Time limit for one reply in seconds. If engines are busy, or paused while a colocated trainer has their memory,
only the rules judge after it."""
LONGEST_CHARACTERS = 400
"""Characters of the longest text that is classified. Longer texts are requests; their beginning is rarely a comment
on the previous answer."""
_REMEMBERED = 256
_IN_FLIGHT = 2
"""Most concurrent requests: users are served first."""


class Reader:
    """Classifies users' comments on answers with the model that engines serve. Create it in a running event loop.

    It first classifies the shipped check examples. If too few are correct, it never judges: a model with a million
    parameters does not understand sentences.

    Args:
        urls: addresses of engines that serve the model.
        tokenizer: the model's tokenizer.
    """

    def __init__(self, urls: Sequence[str], tokenizer: Tokenizer) -> None:
        self._client = EngineClient(urls)
        self._tokenizer = tokenizer
        self._open = asyncio.Semaphore(_IN_FLIGHT)
        self._checking = asyncio.Lock()
        self._can_read: bool | None = None
        self._rests_until = 0.0
        self._known: OrderedDict[str, asyncio.Task[Mapping[str, float]]] = OrderedDict()
        # while no turn waits for it
        self._first_check = asyncio.create_task(self._check_early())

    async def _check_early(self) -> None:
        try:
            await self._checked()
        except (EngineError, ClientError, TimeoutError) as error:
            log.info("the served model cannot be asked to read messages yet, trying again later: %s", error)

    async def close(self) -> None:
        self._first_check.cancel()
        for task in self._known.values():
            task.cancel()
        await self._client.close()

    async def reading(self, comment: str, answer: str, earlier: str = "") -> Reading | None:
        """Classifies a comment on an answer; None if it is too long, the model failed its checks, or no engine answers.

        Args:
            comment: the comment.
            answer: the answer that it is about.
            earlier: the person's comment on the previous answer; "" if this is the first answer.
        """
        if not comment.strip() or len(comment) > LONGEST_CHARACTERS:
            return None
        clock = asyncio.get_running_loop().time()
        if self._can_read is False or clock < self._rests_until:
            return None
        try:
            async with asyncio.timeout(READING_SECONDS):
                return await self._read(comment, answer, earlier)
        except (EngineError, ClientError, TimeoutError) as error:
            self._rests_until = clock + AGAIN_SECONDS
            reason = error or type(error).__name__
            log.warning("the served model is not asked to read messages for %g s: %s", AGAIN_SECONDS, reason)
            return None

    async def _read(self, comment: str, answer: str, earlier: str) -> Reading | None:
        if not await self._checked():
            return None
        now = await self._scores(comment)
        if not earlier.strip() or len(earlier) > LONGEST_CHARACTERS:
            return read(now, answer)
        return read_both(await self._scores(earlier), now, answer)

    async def _checked(self) -> bool:
        """Returns whether the model passed its checks. Raises EngineError and ClientError."""
        async with self._checking:
            if self._can_read is None:
                async with asyncio.timeout(READY_SECONDS):
                    await self._client.wait_ready()
                examples = [(kind.name, text) for kind in kinds().values() for text in kind.checks]
                scores = await asyncio.gather(*[self._asked(text) for _, text in examples])
                right = [read(one).kind.name == name for (name, _), one in zip(examples, scores, strict=True)]
                share = sum(right) / len(right)
                self._can_read = share >= LEAST_RIGHT
                log.info(
                    "the served model reads %.0f %% of %d example sentences right: %s",
                    100 * share,
                    len(right),
                    "it is asked when no rule matches" if self._can_read else "it is not asked",
                )
        return self._can_read

    async def _scores(self, comment: str) -> Mapping[str, float]:
        """Returns the scores, cached, because score and hint of a comment are requested at the same time."""
        task = self._known.get(comment)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._known[comment] = asyncio.create_task(self._asked(comment))
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return await asyncio.shield(task)

    async def _asked(self, comment: str) -> dict[str, float]:
        url = self._client.preferred(uuid.uuid4().hex)[0]

        async def score(context: list[int], sentence: list[int]) -> float:
            async with self._open:
                return await self._client.log_prob(url, context, sentence)

        asked = pairs(comment, self._tokenizer.encode)
        log_probs = await asyncio.gather(*[score(*pair) for pair in asked.values()])
        return dict(zip(asked, log_probs, strict=True))
