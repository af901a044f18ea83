"""The canaries of the loop without processes: its engine answers, its trainer computes the log-probs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from openclaw.gateway.canaries import Canaries, Looked
from openclaw.types import Turn
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample

if TYPE_CHECKING:
    from claw_lab.offline.local_loop import ChatModel, LocalLoop


class LocalModel:
    """The newest weights; with `Setting.behind` they are not yet the ones that answer people."""

    def __init__(self, chat: ChatModel, trainer: FSDPTrainer, version: int) -> None:
        self._chat, self._trainer, self._version = chat, trainer, version

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
        seeds = [random.Random(f"canary {seed} of {turn.messages} under {self._version}").getrandbits(40)]
        return self._chat.answer([prompt_ids], seeds)[0].ids, self._version

    async def log_prob(self, prompt_ids: list[int], ids: list[int]) -> float:
        sample = Sample(tokens=prompt_ids + ids, response_length=len(ids), temperature=1.0)
        return sum(self._trainer.log_probs([sample])[0])


async def look(loop: LocalLoop) -> list[Looked]:
    """Returns the canaries' results for all preferences under the live version."""
    assert loop.trainer is not None
    canaries = Canaries(loop.store, loop.chat.format, LocalModel(loop.chat, loop.trainer, loop.version))
    return [
        one for whose in await canaries.due(loop.version) for one in await canaries.look(whose, loop.version)
    ]
