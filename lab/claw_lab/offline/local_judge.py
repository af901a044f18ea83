"""Runs the judge worker's code on one store, without a separate process."""

from __future__ import annotations

from typing import Any

from openclaw.judge.rules.judge import RulesBackend
from openclaw.judge.turn_judge import JudgeLimits, TurnJudge
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import Method, MethodContext, hints_of
from openclaw.store import RolloutStore, StoreWriter

WORKER = "judge"
_CLAIM_SECONDS = 60.0
_AT_ONCE = 64


class LocalJudge:
    """Judges by rules, oldest turn first, and lets a method make samples.

    Args:
        method_path: of the method's hook.
        votes: for each turn.
    """

    def __init__(self, store: RolloutStore, method_path: str, votes: int, args: Any) -> None:
        self._store = store
        self._writer = StoreWriter(store.database)
        method = Method.load(method_path)
        context = MethodContext(HintedPrompts.of(args.hf_checkpoint), method.chosen(vars(args)))
        limits = JudgeLimits(votes=votes)
        self._judge = TurnJudge(store, self._writer, RulesBackend(), method, limits, context=context)

    async def judge_answered(self) -> list[str]:
        """Judges every turn with a next state; returns the hints."""
        hints: list[str] = []
        while turns := self._store.judgements.claim(WORKER, _AT_ONCE, _CLAIM_SECONDS):
            for turn in turns:
                await self._judge.judge(turn)
                hints += hints_of(self._store.judgements.of_turn(turn.id))
        return hints

    def close(self) -> None:
        self._writer.close()
