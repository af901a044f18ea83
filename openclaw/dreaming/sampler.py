"""Samples planned answers from the engines, and scores those whose likelihood matters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from openclaw.dreaming.asking import IDLE_IN_FLIGHT, IDLE_LIMIT_SECONDS, Answer, Engines, run
from openclaw.dreaming.checks import Checks
from openclaw.dreaming.measures import Scored
from openclaw.dreaming.plans import Plan
from openclaw.dreaming.reasoning import reasoning_of
from openclaw.dreaming.settings import DreamArguments
from openclaw.errors import EngineError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.store import RolloutStore

log = logging.getLogger(__name__)

DELETED_SECONDS = 1.0
"""Seconds between checks whether a turn with a wish was deleted, while answers are sampled."""


class Sampler:
    """Samples answers for one trainer.

    Args:
        urls: addresses of the serving engines, looked up for each call.
    """

    def __init__(
        self, store: RolloutStore, settings: DreamArguments, prompts: HintedPrompts,
        urls: Callable[[], Sequence[str]], engines: Callable[..., Engines],
    ) -> None:  # fmt: skip
        self._store, self._settings, self._prompts = store, settings, prompts
        self._urls, self._engines = urls, engines
        self._checks = Checks(prompts, settings)

    def sample(self, plans: Sequence[Plan], is_idle: bool) -> tuple[list[Plan], list[Scored]]:
        """Returns (all answered plans, scores of dreams and of held-out answers of wishes of unknown form).

        Raises:
            EngineError: no engine answers, or a turn with one of the wishes was deleted.
            StoreError: the store failed.
        """
        return run(self._until_done_or_deleted(plans, is_idle))

    async def _until_done_or_deleted(
        self, plans: Sequence[Plan], is_idle: bool
    ) -> tuple[list[Plan], list[Scored]]:
        sampling = asyncio.create_task(self._sampled(plans, is_idle))
        watching = asyncio.create_task(self._until_deleted(plans))
        try:
            await asyncio.wait((sampling, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            if not sampling.done():
                sampling.cancel()
                await asyncio.wait((sampling,))
        if sampling.cancelled():
            watching.result()  # raises StoreError if the store failed
            raise EngineError("a turn with one of the wishes was deleted")
        return sampling.result()

    async def _until_deleted(self, plans: Sequence[Plan]) -> None:
        """Returns when a turn with one of the wishes is deleted."""
        turn_ids = {id_ for plan in plans for id_ in plan.dream.turn_ids}
        known = await asyncio.to_thread(self._store.turns.stored_among, turn_ids)
        while await asyncio.to_thread(self._store.turns.stored_among, known) == known:
            await asyncio.sleep(DELETED_SECONDS)

    async def _sampled(self, plans: Sequence[Plan], is_idle: bool) -> tuple[list[Plan], list[Scored]]:
        idle = {"in_flight": IDLE_IN_FLIGHT, "limit": IDLE_LIMIT_SECONDS} if is_idle else {}
        async with self._engines(self._urls(), self._prompts.stop_ids, **idle) as engines:
            reasoning = await reasoning_of(
                self._prompts.reasoning,
                self._settings.dream_reasoning_tokens,
                self._prompts.context_length,
                min((plan.dream.prompt_ids for plan in plans), key=len),
                engines.beginning,
            )
            answers = await engines.answers([plan.asked for plan in plans], reasoning)
            self._report_cut(answers)
            answered = [
                plan.answered(one) for plan, one in zip(plans, answers, strict=True) if one and one.ids
            ]
            looks = [plan.dream for plan in answered if plan.dream.kind == "look" and not plan.poles]
            both = looks + self._checks.obedient(answered)
            hinted = await engines.log_probs([(one.taught_ids, one.completion_ids) for one in both])
            plain = await engines.log_probs([(one.prompt_ids, one.completion_ids) for one in both])
        scored = [
            Scored(one, with_wish - without, without / len(one.completion_ids))
            for one, with_wish, without in zip(both, hinted, plain, strict=True)
            if with_wish is not None and without is not None
        ]
        return answered, scored

    def _report_cut(self, answers: Sequence[Answer | None]) -> None:
        cut = sum(one is not None and one.is_cut for one in answers)
        if cut:
            log.warning(
                "%d of %d answers are dropped: their reasoning did not end within %d tokens "
                "(--dream-reasoning-tokens)",
                cut, len(answers), self._settings.dream_reasoning_tokens,
            )  # fmt: skip
