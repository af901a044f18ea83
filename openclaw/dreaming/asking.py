"""Requests answers and log-probs from the serving engines, with a priority below that of people's requests."""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from openclaw.dreaming.reasoning import Reasoning
from openclaw.engine.adapters import Adapter
from openclaw.engine.client import EngineClient
from openclaw.engine.generation import EngineRequest, Generation
from openclaw.errors import ClientError, EngineError

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")
IN_FLIGHT, IDLE_IN_FLIGHT = 32, 1
"""Concurrent requests while a batch waits, and while none waits."""
READY_SECONDS = 30.0
"""Longest wait for an engine."""
LIMIT_SECONDS, IDLE_LIMIT_SECONDS = 600.0, 60.0
"""Seconds after which a batch uses the answers so far; the second: while no batch waits."""
ANSWERING = 2 / 3
"""Share of that time for sampling answers; the rest is for scoring them."""
TEMPERATURE = 0.8


@dataclass(frozen=True)
class Asked:
    """A prompt to be answered with at most `longest` tokens, sampled unless it is `greedy`.

    reasoned_ids: the prompt after which a reasoning model reasons; None: the same prompt.
    """

    prompt_ids: list[int]
    longest: int
    greedy: bool = False
    reasoned_ids: list[int] | None = None


@dataclass(frozen=True)
class Answer:
    """Sampled ids, with the token that ends the answer, and the newest weight version among their tokens.

    Attributes:
        reasoning: ids between the prompt and the answer, with the tokens that open and close the reasoning.
        is_cut: the reasoning did not end within its limit, so there is no answer.
    """

    ids: list[int]
    version: int
    reasoning: list[int] = field(default_factory=list)
    is_cut: bool = False


class Engines:
    """Sends requests to the engines until `limit` seconds after its creation; unanswered requests then return None.

    Args:
        stop_ids: tokens that end an answer.
        ready_seconds: longest wait for the first response of an engine.
        in_flight: concurrent requests.
        adapter: the answering adapter; None: the base model.
    """

    def __init__(
        self,
        urls: Sequence[str],
        stop_ids: Sequence[int],
        ready_seconds: float = READY_SECONDS,
        limit: float = LIMIT_SECONDS,
        in_flight: int = IN_FLIGHT,
        adapter: Adapter | None = None,
    ) -> None:
        self._adapter = adapter
        self._client = EngineClient(urls)
        self._stop_ids = frozenset(stop_ids)
        self._open = asyncio.Semaphore(in_flight)
        self._ready_seconds, self._limit = ready_seconds, limit
        self._began = 0.0

    async def __aenter__(self) -> Engines:
        """Waits for an engine; raises EngineError if none answers in time."""
        try:
            async with asyncio.timeout(self._ready_seconds):
                await self._client.wait_ready()
        except TimeoutError as error:
            await self._client.close()
            raise EngineError(f"no engine answers within {self._ready_seconds:g} s") from error
        self._began = asyncio.get_running_loop().time()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def answers(
        self, asked: Sequence[Asked], reasoning: Reasoning | None = None
    ) -> list[Answer | None]:
        """Returns one answer for each prompt, in order; None for a prompt that an engine rejects or does not answer
        in time.

        Args:
            reasoning: how the model reasons before each answer; None: it does not.
        """
        answer = functools.partial(self._answer, reasoning)
        return await asyncio.gather(*[self._bounded(answer, one, ANSWERING) for one in asked])

    async def beginning(self, prompt_ids: list[int], tokens: int) -> list[int] | None:
        """Returns the most likely first ids of an answer; None if an engine rejects the prompt or does not answer in
        time."""

        async def begin(ids: list[int]) -> list[int]:
            return (await self._sample(ids, tokens, 0.0, self._stop_ids))[0]

        return await self._bounded(begin, prompt_ids, ANSWERING)

    async def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float | None]:
        """Returns the summed log-prob of the answer's ids after the prompt for each pair (prompt, answer), in nats,
        at temperature 1."""
        return await asyncio.gather(*[self._bounded(self._log_prob, one, 1.0) for one in pairs])

    async def _bounded(self, ask: Callable[[A], Awaitable[T]], about: A, share: float) -> T | None:
        try:
            async with asyncio.timeout_at(self._began + share * self._limit), self._open:
                return await ask(about)
        except (TimeoutError, ClientError, EngineError) as error:
            log.debug("a dream has no answer: %r", error)
            return None

    async def _answer(self, reasoning: Reasoning | None, asked: Asked) -> Answer:
        temperature = 0.0 if asked.greedy else TEMPERATURE
        if reasoning is None:
            return Answer(*await self._sample(asked.prompt_ids, asked.longest, temperature, self._stop_ids))
        prompt = asked.prompt_ids if asked.reasoned_ids is None else asked.reasoned_ids
        room = reasoning.room(max(len(prompt), len(asked.prompt_ids)), asked.longest)
        stop_ids = self._stop_ids | {reasoning.close_id}
        # Greedy reasoning tends to repeat itself without end.
        thought, before = await self._sample(prompt + reasoning.opening, room, TEMPERATURE, stop_ids)
        between = reasoning.opening + thought
        if thought[-1:] != [reasoning.close_id]:
            return Answer([], before, between, is_cut=True)
        ids, version = await self._sample(
            asked.prompt_ids + between, asked.longest, temperature, self._stop_ids
        )
        return Answer(ids, max(before, version), between)

    async def _sample(
        self, prompt_ids: list[int], longest: int, temperature: float, stop_ids: frozenset[int]
    ) -> tuple[list[int], int]:
        """Returns sampled ids, and the newest weight version among them."""
        request = EngineRequest(
            id=f"dream-{uuid.uuid4().hex}",
            prompt_ids=prompt_ids,
            max_new_tokens=longest,
            sampling={"temperature": temperature},
            stop_ids=stop_ids,
            log_probs=False,
            adapter=self._adapter,
            is_low_priority=True,
        )
        generation = Generation(self._client, request, request.id)
        async for _increment in generation.run():
            pass
        return generation.ids, max((version for version, _start, _end in generation.spans), default=0)

    async def _log_prob(self, pair: tuple[list[int], list[int]]) -> float:
        url = self._client.preferred(uuid.uuid4().hex)[0]
        return await self._client.log_prob(url, *pair, self._adapter)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine, run in a separate event loop and thread, since callers may have a running
    loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
