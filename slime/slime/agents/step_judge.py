"""Votes of a judge model (a process reward model) on single steps.

Replies come from an engine, which gets token ids, or from an OpenAI-compatible API.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from claw_base.run_folder.records import read_records
from slime.agents.protocol import Message
from slime.agents.step_prompt import read_vote
from slime.errors import ClawError, RewardError
from slime.rollout.engine_pool import EnginePool
from slime.rollout.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)
KEPT = 1000  # characters at a reply's end that are stored with its vote


class StepJudge:
    """The judge of all episodes of a process, so that --prm-concurrency limits their total."""

    _known: dict[str, StepJudge] = {}  # noqa: RUF012
    _lock = threading.Lock()

    def __init__(self, args: GenerationSide, model: JudgeModel) -> None:
        self.args, self.model = args, model
        self.slots = asyncio.Semaphore(args.prm_concurrency)

    @classmethod
    def of(cls, args: GenerationSide) -> StepJudge:
        """Returns the judge of the run with these arguments."""
        with cls._lock:
            if args.run_dir not in cls._known:
                cls._known[args.run_dir] = cls(args, judge_model(args))
            return cls._known[args.run_dir]

    async def verdict(self, step_index: int, messages: list[Message]) -> dict[str, Any]:
        """Requests --prm-m votes concurrently. Never raises if the judge fails: such a step has no score.

        Returns:
            {"status", "step_index", "scores", "valid_scores", "valid_vote_count", "mean_score", "votes"}. The status is
            ok, invalid_result (no vote is 1 or -1) or exception (no reply). mean_score is None unless the status is ok.
        """
        seeds = [self.args.rollout_seed * 1000 + vote for vote in range(self.args.prm_m)]
        votes = await asyncio.gather(*(self._vote(messages, seed & 0x7FFFFFFF) for seed in seeds))
        valid = [vote["score"] for vote in votes if vote["score"]]
        has_reply = any(vote["ok"] for vote in votes)
        return {
            "status": "ok" if valid else "invalid_result" if has_reply else "exception",
            "step_index": step_index,
            "scores": [vote["score"] for vote in votes],
            "valid_scores": valid,
            "valid_vote_count": len(valid),
            "mean_score": sum(valid) / len(valid) if valid else None,
            "votes": votes,
        }

    async def _vote(self, messages: list[Message], seed: int) -> dict[str, Any]:
        """Returns a vote; `score` is 1 or -1, 0 for a reply with neither, None if there was no reply (`ok` is
        false)."""
        async with self.slots:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self.args.prm_timeout):
                    text = await self.model.reply(messages, seed)
            except (ClawError, TimeoutError) as error:
                logger.warning("the judge did not vote on a step: %s", str(error) or type(error).__name__)
                return _vote_of(None, began, f"{type(error).__name__}: {error}", ok=False)
            return _vote_of(read_vote(text) or 0, began, text, ok=True)


def _vote_of(score: int | None, began: float, text: str, ok: bool) -> dict[str, Any]:
    latency = round((time.monotonic() - began) * 1000, 1)
    return {"score": score, "latency_ms": latency, "raw_text": text[-KEPT:], "ok": ok}


JUDGE_ENGINE = "judge_engine"
TRIES, PAUSE = 3, 0.5  # attempts of an API request; seconds before the second, doubled before the third
RETRY_STATUS = (408, 425, 429, 500, 502, 503, 504)


class JudgeModel(Protocol):
    """A judge model. Called concurrently; the caller limits time and concurrency."""

    async def reply(self, messages: list[Message], seed: int) -> str:
        """Returns a reply. Raises EngineError or RewardError if there is none."""


def judge_model(args: GenerationSide) -> JudgeModel:
    """Returns the judge model given by the flags; --prm-enable requires one."""
    return ChatJudge(args) if args.prm_url else EngineJudge(args)


class EngineJudge:
    """Engines with SGLang's `/generate`: those of the run, or the one at --prm-router-ip."""

    def __init__(self, args: GenerationSide) -> None:
        self.args = args
        self.model = args.prm_model_path or args.prm_hf_checkpoint or args.hf_checkpoint
        self.pool = EnginePool(self._urls)

    def _urls(self) -> list[str]:
        if self.args.prm_router_ip:
            return [f"http://{self.args.prm_router_ip}:{self.args.prm_router_port}"]
        records = read_records(Path(self.args.run_dir))
        return [record.url for record in records if record.role == JUDGE_ENGINE and record.url]

    async def reply(self, messages: list[Message], seed: int) -> str:
        tokenizer = load_tokenizer(self.model)
        params = {
            "temperature": self.args.prm_temperature,
            "max_new_tokens": self.args.prm_max_new_tokens,
            "sampling_seed": seed,
        }
        ids = tokenizer.encode(tokenizer.render(messages, answer_next=True))
        context = (
            None if self.args.prm_router_ip else self.args.prm_context_length or self.args.context_length
        )
        if context is not None:
            if len(ids) >= context:
                raise RewardError(
                    f"the judge's prompt of {len(ids)} tokens fills its context of {context} (--prm-context-length)"
                )
            params["max_new_tokens"] = min(self.args.prm_max_new_tokens, context - len(ids))
        body = {"input_ids": ids, "sampling_params": params}
        return str((await self.pool.generate(body, self.args.prm_timeout)).get("text") or "")


class ChatJudge:
    """`/chat/completions` of an API, retried if it is overloaded or unreachable."""

    def __init__(self, args: GenerationSide) -> None:
        self.args = args
        self.url = f"{(args.prm_url or '').rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {args.prm_api_key}"} if args.prm_api_key else {}
        limits = httpx.Limits(max_connections=args.prm_concurrency)
        self.client = httpx.AsyncClient(headers=headers, timeout=args.prm_timeout, limits=limits)

    async def reply(self, messages: list[Message], seed: int) -> str:
        body = {
            "model": self.args.prm_model,
            "messages": messages,
            "temperature": self.args.prm_temperature,
            "max_tokens": self.args.prm_max_new_tokens,
            "seed": seed,
        }
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                answer = await self.client.post(self.url, json=body)
            except httpx.TransportError as error:
                reason = f"{type(error).__name__} {error}".strip()
                continue
            if answer.status_code == 200:
                return _text(answer)
            reason = f"status {answer.status_code}: {answer.text[:200]}"
            if answer.status_code not in RETRY_STATUS:
                break
        raise RewardError(f"{self.url}: {reason}")


def _text(answer: httpx.Response) -> str:
    """Returns the reply; if there is only reasoning, the reasoning."""
    try:
        message: dict[str, Any] = answer.json()["choices"][0]["message"]
        return str(message.get("content") or message.get("reasoning_content") or "")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise RewardError(f"the judge's answer has no choices[0].message: {answer.text[:200]}") from error
