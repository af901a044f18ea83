"""Votes of a judge model (a process reward model) on single steps."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from slime.agents.judge_models import JudgeModel, judge_model
from slime.agents.protocol import Message
from slime.agents.step_prompt import read_vote
from slime.errors import ClawError

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)
KEPT = 1000  # characters of a reply's end that are kept with its vote


class StepJudge:
    """One for all episodes of a process, so that --prm-concurrency holds for all of them together."""

    _known: dict[str, StepJudge] = {}  # noqa: RUF012
    _lock = threading.Lock()

    def __init__(self, args: GenerationSide, model: JudgeModel) -> None:
        self.args, self.model = args, model
        self.places = asyncio.Semaphore(args.prm_concurrency)

    @classmethod
    def of(cls, args: GenerationSide) -> StepJudge:
        """The judge of the run that `args` belong to."""
        with cls._lock:
            if args.run_dir not in cls._known:
                cls._known[args.run_dir] = cls(args, judge_model(args))
            return cls._known[args.run_dir]

    async def verdict(self, step_index: int, messages: list[Message]) -> dict[str, Any]:
        """--prm-m votes at the same time. Never raises for a judge that fails: such a step has no score.

        Returns:
            {"status", "step_index", "scores", "valid_scores", "valid_vote_count", "mean_score", "votes"}. The status is
            ok, invalid_result (no vote says 1 or -1) or exception (no vote came back), mean_score None unless it is ok.
        """
        seeds = [self.args.rollout_seed * 1000 + vote for vote in range(self.args.prm_m)]
        votes = await asyncio.gather(*(self._vote(messages, seed & 0x7FFFFFFF) for seed in seeds))
        valid = [vote["score"] for vote in votes if vote["score"]]
        came = any(vote["ok"] for vote in votes)
        return {
            "status": "ok" if valid else "invalid_result" if came else "exception",
            "step_index": step_index,
            "scores": [vote["score"] for vote in votes],
            "valid_scores": valid,
            "valid_vote_count": len(valid),
            "mean_score": sum(valid) / len(valid) if valid else None,
            "votes": votes,
        }

    async def _vote(self, messages: list[Message], seed: int) -> dict[str, Any]:
        """`score` is 1 or -1, 0 for a reply that says neither, None where none came (`ok` is false)."""
        async with self.places:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self.args.prm_timeout):
                    text = await self.model.reply(messages, seed)
            except (ClawError, TimeoutError) as error:
                logger.warning("a vote on a step failed: %s", str(error) or type(error).__name__)
                return _vote_of(None, began, f"{type(error).__name__}: {error}", ok=False)
            return _vote_of(read_vote(text) or 0, began, text, ok=True)


def _vote_of(score: int | None, began: float, text: str, ok: bool) -> dict[str, Any]:
    latency = round((time.monotonic() - began) * 1000, 1)
    return {"score": score, "latency_ms": latency, "raw_text": text[-KEPT:], "ok": ok}
