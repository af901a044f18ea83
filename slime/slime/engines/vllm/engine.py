"""Wrapper of vLLM's `AsyncLLM`."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from slime.engines.requests import ModelLimits, RequestError
from slime.engines.vllm.answers import Delta, rows_of

PAUSE_MODES = {"abort": ("abort", True), "retract": ("keep", True), "in_place": ("keep", False)}
"""vLLM's mode, and whether cached keys and values are dropped, by SGLang's mode."""
LOOK_INTERVAL = 0.02  # seconds
TURNS = 64
"""Iterations of the event loop until every output sent by vLLM has been read; each handles 128 requests."""


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison. `compared`: number of live tensors equal to the files; `wrong`: names of the
    others."""

    compared: int
    wrong: list[str]


class HostedEngine:
    """A running AsyncLLM.

    Args:
        llm: vLLM's AsyncLLM with this project's worker extension.
        make_params: constructor of vLLM's SamplingParams.
        refusals: exceptions that vLLM raises for invalid requests.
    """

    def __init__(
        self,
        llm: Any,
        make_params: Callable[..., Any],
        refusals: tuple[type[Exception], ...] = (ValueError,),
    ) -> None:
        self._llm = llm
        self._make_params = make_params
        self._refusals = refusals
        config = llm.model_config
        self.limits = ModelLimits(int(config.max_model_len), int(config.get_vocab_size()))
        self.dtype = str(config.dtype).removeprefix("torch.")
        self.tied = bool(config.hf_text_config.tie_word_embeddings)
        self.paused = False

    @property
    def dead(self) -> bool:
        """Returns whether vLLM's engine process has exited; it does not restart."""
        return bool(self._llm.errored)

    @property
    def tokenizer(self) -> Any:
        return self._llm.get_tokenizer()

    async def start(self) -> None:
        """Called once, before the first request."""
        await self._llm.collective_rpc("slime_start", args=(os.getpid(),))

    def shutdown(self) -> None:
        self._llm.shutdown(timeout=1)

    async def generate(self, prompt: list[int], options: dict[str, Any], rid: str) -> AsyncIterator[Delta]:
        """Yields vLLM's outputs for one request as they arrive. Aborts the request if the caller stops early.

        Raises:
            RequestError: vLLM rejects it.
        """
        try:
            params = self._make_params(**options)
            outputs = self._llm.generate({"type": "token", "prompt_token_ids": prompt}, params, rid)
            async with aclosing(outputs):
                async for output in outputs:
                    yield delta_of(output)
        except self._refusals as error:
            raise RequestError(str(error)) from error

    async def abort(self, rid: str) -> None:
        await self._llm.abort(rid)

    async def pause(self, mode: str) -> None:
        """Pauses, and returns when no step runs and all its tokens were read. Requests wait, except with
        `abort`."""
        name, clear = PAUSE_MODES[mode]
        await self._llm.pause_generation(mode=name, clear_cache=clear)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def resume(self) -> None:
        await self._llm.resume_generation()

    async def load(self, folder: str, version: int) -> None:
        """Loads weights while nothing runs; later tokens have version `version`."""
        await self._llm.collective_rpc("slime_load", args=(folder,))
        await self.name_version(version)

    async def name_version(self, version: int) -> None:
        await self._llm.update_weight_version(str(version))

    async def expect(self, folder: str) -> None:
        """Returns when all workers have the expected values of a folder's files; requests continue meanwhile."""
        await self._llm.collective_rpc("slime_expect", args=(folder,))
        while not all(await self._llm.collective_rpc("slime_expected", args=(folder,))):
            await asyncio.sleep(LOOK_INTERVAL)

    async def compare(self, folder: str) -> Comparison:
        """Compares the live tensors of all workers with the files of a folder."""
        reports = await self._llm.collective_rpc("slime_compare", args=(folder,))
        wrong = sorted({name for worker in reports for name in worker["wrong"]})
        return Comparison(min(worker["compared"] for worker in reports), wrong)

    async def score(self, ids: list[int]) -> list[float]:
        """Returns the model's log-probs of `ids` [T - 1]."""
        options = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "flat_logprobs": True}
        rows = None
        async for delta in self.generate(ids, options, f"probe-{uuid.uuid4().hex}"):
            rows = delta.prompt_rows or rows
        return [row[0][0] for row in (rows or [])[1:]]


def delta_of(output: Any) -> Delta:
    """Converts vLLM's RequestOutput (of kind DELTA, with flat log-probs)."""
    completion = output.outputs[0]
    finish = (
        None if completion.finish_reason is None else (str(completion.finish_reason), completion.stop_reason)
    )
    return Delta(
        ids=list(completion.token_ids),
        text=completion.text,
        rows=rows_of(completion.logprobs) if completion.logprobs is not None else [],
        prompt_rows=rows_of(output.prompt_logprobs) if output.prompt_logprobs else None,
        finish=finish,
        spans=[(span.version, span.start, span.end) for span in completion.weight_versions or []],
        cached=output.num_cached_tokens or 0,
    )
