"""Canary tests: measure whether the weights follow a preference without a reminder of it in the prompt.

The engine answers earlier questions of the person again, without the reminder. An answer follows the preference if
adding the reminder to its prompt lowers its log-probability by less than `gap` / 2. Here `gap` is the decrease, in nats,
for the answer that the person complained about.

Wald's sequential probability ratio test (1945) decides between a fraction of `HELD` and one of `NOT_YET` of the
answers, with an error probability of at most `ERROR` on each side. Each version is tested separately. Questions that
ask for a form themselves are not used. Tests run after a new version goes live, while the engine answers no other
request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from openclaw.common.messages import last_user_text
from openclaw.common.wish_themes import is_overridden
from openclaw.engine.adapters import Adapter
from openclaw.engine.generation import EngineRequest, Generation
from openclaw.errors import ClawError, ClientError
from openclaw.formats.rendering import ChatFormat
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.running import Use
from openclaw.methods.hinted_prompt import with_memory
from openclaw.store import RolloutStore
from openclaw.store.memory import Wish
from openclaw.store.rights import Asker
from openclaw.types import DEFAULT_TRAINER, Turn, policy_of

log = logging.getLogger(__name__)

HELD, NOT_YET, ERROR = 0.98, 0.9, 0.05
"""Fraction of answers that follow a learned preference, fraction for one that is not learned, error probability."""
MOST = 128
"""Most answers per test. A preference that is still undecided is tested again with the next version."""
QUESTIONS = 32
"""Number of newest questions of a person that are asked, repeatedly with different seeds."""
LEAST_GAP = math.log(10)
"""Nats. With a smaller gap the test cannot detect the preference, which then stays in the prompts."""
LOOK_SECONDS = 5.0
"""Interval between checks for preferences that are not tested with the live version."""
RETRY_SECONDS = 60.0
"""Wait after a failed test, or a test that another version than the live one of the store answered."""
WAIT_SECONDS = 30.0
"""Longest time that a test waits for answers to users. Then it runs at the same time."""
QUIET_POLL_SECONDS = 0.05
MOST_TOKENS = 512


@dataclass(frozen=True)
class Count:
    """Test results of a preference with one version.

    Attributes:
        asked: number of answers.
        shown: number of answers that follow the preference.
    """

    asked: int = 0
    shown: int = 0

    def plus(self, shown: bool) -> Count:
        """Returns the count with one more answer."""
        return Count(self.asked + 1, self.shown + shown)

    @property
    def held(self) -> bool | None:
        """Returns whether the version follows the preference; None if the test is undecided."""
        missed = self.asked - self.shown
        log_ratio = self.shown * math.log(HELD / NOT_YET) + missed * math.log((1 - HELD) / (1 - NOT_YET))
        bound = math.log((1 - ERROR) / ERROR)
        return None if abs(log_ratio) < bound else log_ratio > 0


class Model(Protocol):
    """Samples and scores answers with the live weights."""

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
        """Returns the sampled ids [T], and the version that sampled them."""

    async def log_prob(self, prompt_ids: list[int], ids: list[int]) -> float:
        """Returns the log-prob of the ids [T] after the prompt, in nats, at temperature 1."""


@dataclass(frozen=True)
class Looked:
    """A preference with its test results.

    Attributes:
        gap: see the module docstring, in nats; None if it could not be measured.
        version: the tested version.
    """

    wish: Wish
    gap: float | None
    version: int
    count: Count = Count()

    @property
    def asks(self) -> bool:
        """Returns whether the test needs more answers."""
        return self.gap is not None and self.gap >= LEAST_GAP and self.count.held is None

    def details(self) -> dict[str, Any]:
        """Returns the results in the form that is stored with the preference."""
        return {"gap": self.gap, "version": self.version, **asdict(self.count)}


def shows(turn: Turn, wish: Wish) -> bool:
    """Returns whether answers to a turn's question can show that a preference is followed. They cannot if the question
    itself asks for another form."""
    return not is_overridden(wish.text, last_user_text(turn.messages))


class Canaries:
    """Tests the preferences of one person at a time, and records those that the weights have learned, so that they are
    no longer added to prompts."""

    def __init__(
        self, store: RolloutStore, chat_format: ChatFormat, model: Model, trainer: str = DEFAULT_TRAINER
    ) -> None:
        self._store, self._format, self._model, self._trainer = store, chat_format, model, trainer

    async def due(self, version: int) -> list[Asker]:
        """Returns the people, with their keys, who have preferences in their prompts that are not tested with this
        version. Those with the newest preferences are first."""
        in_prompts = await asyncio.to_thread(self._store.memory.waiting, self._trainer)
        untested = [one for one in in_prompts if one.details.get("version") != version]
        return list(dict.fromkeys(Asker(one.key_name, one.person) for one in untested))

    async def look(self, whose: Asker, version: int) -> list[Looked]:
        """Tests the preferences in a person's prompts with the live version, and stores the results.

        Prompts that the engine rejects as too long are skipped.

        Args:
            whose: the person and key.
            version: the live version.

        Returns:
            The results; [] if another version answers.

        Raises:
            StoreError, EngineError.
        """
        assert whose.person is not None
        remembered, trainer = self._store.memory.remembered, self._trainer
        wishes = await asyncio.to_thread(remembered, whose.person, asker=whose, trainer=trainer)
        results = [
            Looked(wish, await self._gap(wish), version)
            for wish in wishes
            if wish.details.get("version") != version
        ]
        questions = await asyncio.to_thread(self._questions, whose) if results else []
        testable = {
            turn.id: {one.wish.id for one in results if shows(turn, one.wish)} for turn, _ids in questions
        }
        for number in range(MOST):
            undecided = {one.wish.id for one in results if one.asks}
            useful = [question for question in questions if testable[question[0].id] & undecided]
            if not useful:
                break
            turn, prompt = useful[number % len(useful)]
            try:
                ids, sampled_by = await self._model.answer(turn, prompt, number)
                if sampled_by != version:
                    return []
                log_prob = await self._model.log_prob(prompt, ids)
                counted = testable[turn.id] & undecided
                results = [
                    await self._counted(one, turn, ids, log_prob) if one.wish.id in counted else one
                    for one in results
                ]
            except ClientError:
                continue
        await asyncio.to_thread(self._save, results)
        return results

    def _save(self, results: Sequence[Looked]) -> None:
        for one in results:
            if one.count.held:
                self._store.memory.hold(one.wish.id, one.version, one.details())
            else:
                self._store.memory.note(one.wish.id, one.details())

    def _questions(self, whose: Asker) -> list[tuple[Turn, list[int]]]:
        """Returns the newest turns of a person with their prompt ids [T], rendered without preferences."""
        assert whose.person is not None
        turns = self._store.memory.canary_turns(whose.person, QUESTIONS, whose, self._trainer)
        questions = [(turn, self._ids(turn)) for turn in turns]
        return [(turn, ids) for turn, ids in questions if ids is not None]

    async def _counted(self, one: Looked, turn: Turn, ids: list[int], log_prob: float) -> Looked:
        """Returns the results of a preference with one more answer `ids`, whose log-prob without a reminder is
        `log_prob`."""
        reminded = self._ids(turn, [one.wish.text])
        if reminded is None or one.gap is None:
            return one
        decrease = log_prob - await self._model.log_prob(reminded, ids)
        return replace(one, count=one.count.plus(decrease < one.gap / 2))

    async def _gap(self, wish: Wish) -> float | None:
        """Returns by how many nats the reminder lowers the log-prob of the answer that the person complained about;
        None if it cannot be measured. It is measured only once, before the preference is learned."""
        if "gap" in wish.details:
            gap: float | None = wish.details["gap"]
            return gap
        turn = await asyncio.to_thread(self._store.turns.get, wish.turn_id)
        if turn is None:
            return None
        plain, reminded = self._ids(turn), self._ids(turn, [wish.text])
        if plain is None or reminded is None:
            return None
        try:
            without = await self._model.log_prob(plain, turn.completion_ids)
            return without - await self._model.log_prob(reminded, turn.completion_ids)
        except ClientError:
            return None

    def _ids(self, turn: Turn, wishes: Sequence[str] = ()) -> list[int] | None:
        """Returns a turn's prompt [T] with only these reminders; None if the prompt has pictures, or cannot be rendered
        again."""
        if turn.pictures or any(message.get("format") == "raw" for message in turn.messages):
            return None
        try:
            thinking = turn.sampling.get("enable_thinking", True)
            return self._format.render(with_memory(turn.messages, wishes), turn.tools, thinking)
        except ClientError:
            return None


class LiveModel:
    """The live base model, or the live version of a trained adapter, on the gateway's engines. Stores no turns."""

    def __init__(self, gateway: Gateway, adapter: Adapter | None = None) -> None:
        self._gateway, self._adapter = gateway, adapter

    @property
    def adapter(self) -> Adapter | None:
        """Returns the adapter's live version; None for the base model."""
        return None if self._adapter is None else self._gateway.trained.live(self._adapter)

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
        """Returns the sampled ids [T] and their version; -1 for several versions. Raises ClientError if the engines
        reject the prompt."""
        await self._wait_until_idle()
        room = self._gateway.context_length - len(prompt_ids)
        request = EngineRequest(
            id=f"canary-{uuid.uuid4().hex}",
            prompt_ids=prompt_ids,
            max_new_tokens=max(1, min(MOST_TOKENS, room)),
            sampling={"temperature": turn.sampling["temperature"], "sampling_seed": seed},
            stop_ids=frozenset(self._gateway.format.stop_ids),
            log_probs=False,
            adapter=self.adapter,
        )
        generation = Generation(self._gateway.engines, request, request.id)
        async with aclosing(generation.run()) as increments:
            async for _ in increments:
                pass
        versions = {version for version, _, _ in generation.spans}
        return generation.ids, versions.pop() if len(versions) == 1 else -1

    async def log_prob(self, prompt_ids: list[int], ids: list[int]) -> float:
        """Returns the log-prob of the ids [T] after the prompt. Raises EngineError, ClientError."""
        await self._wait_until_idle()
        engines = self._gateway.engines
        return await engines.log_prob(engines.preferred("canary")[0], prompt_ids, ids, self.adapter)

    async def _wait_until_idle(self) -> None:
        """Waits until no answer runs, for at most WAIT_SECONDS."""
        waited = 0.0
        while self._gateway.running.running and waited < WAIT_SECONDS:
            await asyncio.sleep(QUIET_POLL_SECONDS)
            waited += QUIET_POLL_SECONDS


def _policy(gateway: Gateway, store: RolloutStore, adapter: Adapter | None) -> tuple[Canaries, str | None]:
    """Returns the canary tests of a policy, and the argument of `VersionTable.live` for its live version."""
    trainer = policy_of(DEFAULT_TRAINER, None if adapter is None else adapter.name)
    canaries = Canaries(store, gateway.format, LiveModel(gateway, adapter), trainer)
    return canaries, None if adapter is None else trainer


async def _look(gateway: Gateway, canaries: Canaries, whose: Asker, version: int) -> list[Looked]:
    """Returns the result of `Canaries.look`; [] if words of the person are deleted meanwhile: no prompt with them is sent
    after the end of the deletion."""
    looking = asyncio.create_task(canaries.look(whose, version))
    people = None if whose.person is None else {whose.person}
    with gateway.uses.during(Use(people, cancel=looking.cancel)):
        try:
            return await looking
        except asyncio.CancelledError:
            if (own := asyncio.current_task()) is not None and own.cancelling():
                raise
            return []


async def watch(gateway: Gateway, store: RolloutStore) -> None:
    """Tests all preferences with each new version, until cancelled. Failed tests are repeated later."""
    policies = [_policy(gateway, store, one) for one in (None, *gateway.trained.adapters.values())]
    pause = LOOK_SECONDS
    while True:
        await asyncio.sleep(pause)
        tests: list[list[Looked]] = []
        try:
            for canaries, trainer in policies:
                version = await asyncio.to_thread(store.versions.live, trainer)
                for whose in await canaries.due(version):
                    tests.append(await _look(gateway, canaries, whose, version))
        except ClawError as error:
            log.info("the canary tests failed and are repeated in %g s: %s", RETRY_SECONDS, error)
            pause = RETRY_SECONDS
            continue
        pause = LOOK_SECONDS if all(tests) else RETRY_SECONDS
        for one in (one for results in tests for one in results if one.count.held):
            log.info(
                "version %d follows a preference without a reminder in %d of %d answers",
                version,
                one.count.shown,
                one.count.asked,
            )
