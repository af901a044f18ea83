"""Canary tests: measure whether the weights follow a preference without its reminder in the prompt.

The engine answers the person's own questions again, without the reminder. The scale is the answer that the person
complained about: adding the reminder to its prompt lowers its log-probability by `gap` nats. A new answer follows the
preference if adding the reminder lowers its log-probability by less than half of `gap`. Wald's sequential probability
ratio test (1945) decides between a share of `HELD` and one of `NOT_YET`, with at most `ERROR` of each error for a
version; each new version starts from zero. Questions that themselves ask for a form are not counted. Canaries run
after a new version goes live, while the engine answers no other request.
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

from openclaw.common.messages import last_said
from openclaw.common.wish_themes import gives_way
from openclaw.engine.adapters import Adapter
from openclaw.engine.generation import EngineRequest, Generation
from openclaw.errors import ClawError, ClientError
from openclaw.formats.rendering import ChatFormat
from openclaw.gateway.gateway import Gateway
from openclaw.methods.hinted_prompt import with_memory
from openclaw.store import RolloutStore
from openclaw.store.memory import Wish
from openclaw.store.rights import Asker
from openclaw.types import DEFAULT_TRAINER, Turn, policy_of

log = logging.getLogger(__name__)

HELD, NOT_YET, ERROR = 0.98, 0.9, 0.05
MOST = 128
"""Most answers in one test; an undecided preference is tested again at the next version."""
QUESTIONS = 32
"""Number of a person's newest questions that are used, repeatedly with other seeds."""
LEAST_GAP = math.log(10)
"""Nats. If a reminder makes less of a difference to the answer complained about, the test cannot detect the
preference, and it stays in the prompts."""
LOOK_SECONDS = 5.0
"""Seconds between checks whether the live version has untested preferences."""
RETRY_SECONDS = 60.0
"""Seconds to wait after a failed test, or one answered by a version other than the store's live one."""
WAIT_SECONDS = 30.0
"""Longest time in seconds that a canary test waits for users' answers to finish; after it, the test runs
concurrently."""
QUIET_POLL_SECONDS = 0.05
MOST_TOKENS = 512


@dataclass(frozen=True)
class Count:
    """Test results under one version; `held`: the decision, once there is one."""

    asked: int = 0
    shown: int = 0

    def plus(self, shown: bool) -> Count:
        return Count(self.asked + 1, self.shown + shown)

    @property
    def held(self) -> bool | None:
        missed = self.asked - self.shown
        weight = self.shown * math.log(HELD / NOT_YET) + missed * math.log((1 - HELD) / (1 - NOT_YET))
        bound = math.log((1 - ERROR) / ERROR)
        return None if abs(weight) < bound else weight > 0


class Model(Protocol):
    """The live weights. `answer` returns sampled ids and the version that sampled them, `log_prob` is in nats, at
    temperature 1."""

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]: ...

    async def log_prob(self, prompt_ids: list[int], ids: list[int]) -> float: ...


@dataclass(frozen=True)
class Looked:
    """A preference with its results under `version`; gap: nats of the answer complained about; None if not
    measured."""

    wish: Wish
    gap: float | None
    version: int
    count: Count = Count()

    @property
    def asks(self) -> bool:
        """Returns whether more answers are needed to decide."""
        return self.gap is not None and self.gap >= LEAST_GAP and self.count.held is None

    def details(self) -> dict[str, Any]:
        """Returns the results in the form that is stored with the preference."""
        return {"gap": self.gap, "version": self.version, **asdict(self.count)}


def shows(turn: Turn, wish: Wish) -> bool:
    """Returns whether an answer to a turn's question can follow a preference: not if the question asks for a form
    itself."""
    return not gives_way(wish.text, last_said(turn.messages))


class Canaries:
    """Tests one person's preferences at a time, and removes those that the weights have learned from the prompts."""

    def __init__(
        self, store: RolloutStore, chat_format: ChatFormat, model: Model, trainer: str = DEFAULT_TRAINER
    ) -> None:
        self._store, self._format, self._model, self._trainer = store, chat_format, model, trainer

    async def due(self, version: int) -> list[Asker]:
        """Returns people with a reminder in their prompts that was not tested under this version, each with the key
        of their turns, most recently active first."""
        known = await asyncio.to_thread(self._store.memory.waiting, self._trainer)
        waiting = [one for one in known if one.details.get("version") != version]
        return list(dict.fromkeys(Asker(one.key_name, one.person) for one in waiting))

    async def look(self, whose: Asker, version: int) -> list[Looked]:
        """Tests the preferences in a person's prompts under this live version, stores the results and returns them;
        [] once another version answers. Prompts that an engine rejects as too long are skipped. Raises StoreError,
        EngineError."""
        assert whose.person is not None
        remembered, trainer = self._store.memory.remembered, self._trainer
        wishes = await asyncio.to_thread(remembered, whose.person, asker=whose, trainer=trainer)
        looked = [
            Looked(wish, await self._gap(wish), version)
            for wish in wishes
            if wish.details.get("version") != version
        ]
        questions = await asyncio.to_thread(self._questions, whose) if looked else []
        shown = {
            turn.id: {one.wish.id for one in looked if shows(turn, one.wish)} for turn, _ids in questions
        }
        for number in range(MOST):
            undecided = {one.wish.id for one in looked if one.asks}
            useful = [question for question in questions if shown[question[0].id] & undecided]
            if not useful:
                break
            turn, prompt = useful[number % len(useful)]
            try:
                ids, wrote = await self._model.answer(turn, prompt, number)
                if wrote != version:
                    return []
                plain = await self._model.log_prob(prompt, ids)
                counted = shown[turn.id] & undecided
                looked = [
                    await self._counted(one, turn, ids, plain) if one.wish.id in counted else one
                    for one in looked
                ]
            except ClientError:
                continue
        await asyncio.to_thread(self._keep, looked)
        return looked

    def _keep(self, looked: Sequence[Looked]) -> None:
        for one in looked:
            if one.count.held:
                self._store.memory.hold(one.wish.id, one.version, one.details())
            else:
                self._store.memory.note(one.wish.id, one.details())

    def _questions(self, whose: Asker) -> list[tuple[Turn, list[int]]]:
        """Returns the newest prompts of a person, without remembered preferences."""
        assert whose.person is not None
        turns = self._store.memory.canary_turns(whose.person, QUESTIONS, whose, self._trainer)
        asked = [(turn, self._ids(turn)) for turn in turns]
        return [(turn, ids) for turn, ids in asked if ids is not None]

    async def _counted(self, one: Looked, turn: Turn, ids: list[int], plain: float) -> Looked:
        wished = self._ids(turn, [one.wish.text])
        if wished is None or one.gap is None:
            return one
        fallen = plain - await self._model.log_prob(wished, ids)
        return replace(one, count=one.count.plus(fallen < one.gap / 2))

    async def _gap(self, wish: Wish) -> float | None:
        """Returns by how many nats the reminder lowers the answer complained about; measured once, before it is
        learned."""
        if "gap" in wish.details:
            gap: float | None = wish.details["gap"]
            return gap
        turn = await asyncio.to_thread(self._store.turns.get, wish.turn_id)
        if turn is None:
            return None
        plain, wished = self._ids(turn), self._ids(turn, [wish.text])
        if plain is None or wished is None:
            return None
        try:
            without = await self._model.log_prob(plain, turn.completion_ids)
            return without - await self._model.log_prob(wished, turn.completion_ids)
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
    """The live weights, or a trained adapter, through the gateway's engines; nothing is stored."""

    def __init__(self, gateway: Gateway, adapter: Adapter | None = None) -> None:
        self._gateway, self._adapter = gateway, adapter

    @property
    def adapter(self) -> Adapter | None:
        """Returns the adapter's live version; None for the base model."""
        return None if self._adapter is None else self._gateway.trained.live(self._adapter)

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
        """Samples an answer. Raises ClientError if the engines reject the prompt, or it leaves no room."""
        await self._quiet()
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
        """Returns the answer's log-prob. Raises EngineError."""
        await self._quiet()
        engines = self._gateway.engines
        return await engines.log_prob(engines.preferred("canary")[0], prompt_ids, ids, self.adapter)

    async def _quiet(self) -> None:
        waited = 0.0
        while self._gateway.running.running and waited < WAIT_SECONDS:
            await asyncio.sleep(QUIET_POLL_SECONDS)
            waited += QUIET_POLL_SECONDS


def _policy(gateway: Gateway, store: RolloutStore, adapter: Adapter | None) -> tuple[Canaries, str | None]:
    """Returns the canary tests of a policy, and the trainer whose live version they test; None: the main one, not
    that of an adapter."""
    trainer = policy_of(DEFAULT_TRAINER, None if adapter is None else adapter.name)
    canaries = Canaries(store, gateway.format, LiveModel(gateway, adapter), trainer)
    return canaries, None if adapter is None else trainer


async def watch(gateway: Gateway, store: RolloutStore) -> None:
    """Runs until cancelled. Failed tests are repeated later."""
    policies = [_policy(gateway, store, one) for one in (None, *gateway.trained.adapters.values())]
    pause = LOOK_SECONDS
    while True:
        await asyncio.sleep(pause)
        looks: list[list[Looked]] = []
        try:
            for canaries, trainer in policies:
                version = await asyncio.to_thread(store.versions.live, trainer)
                looks += [await canaries.look(whose, version) for whose in await canaries.due(version)]
        except ClawError as error:
            log.info("the canary questions are asked again later: %s", error)
            pause = RETRY_SECONDS
            continue
        pause = LOOK_SECONDS if all(looks) else RETRY_SECONDS
        for one in (one for looked in looks for one in looked if one.count.held):
            log.info(
                "version %d follows a preference in %d of %d answers",
                version,
                one.count.shown,
                one.count.asked,
            )
