"""The process that hosts vLLM: loads and verifies weights, serves the embedded engine's protocol, exits with
vLLM.

Runs in vLLM's Python.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from slime.engines.json_http import DONE, SERVER_OPTIONS, JsonHttp, disconnected, pause_after_chunk
from slime.engines.requests import (
    AbortRequest,
    EmptyRequest,
    GenerateRequest,
    ModelLimits,
    PauseRequest,
    PrepareRequest,
    RequestError,
    RunningRequestError,
    SwitchRequest,
    WeightsError,
)
from slime.engines.vllm.answers import HostedAnswer
from slime.engines.vllm.engine import HostedEngine
from slime.engines.vllm.weights import BrokenEngineError, HostedWeights

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
WIRE = JsonHttp(json.loads, lambda body: json.dumps(body, separators=(",", ":")).encode())


class VLLMServer:
    """Routes over one engine and its weights.

    Args:
        about: model_path and version, for /model_info and /server_info.
        end: ends the process when the engine can no longer serve.
    """

    def __init__(
        self, engine: HostedEngine, weights: HostedWeights, about: dict[str, str], end: Callable[[], None]
    ) -> None:
        self.engine, self.weights = engine, weights
        self.about, self.end = about, end
        self.running: dict[str, HostedAnswer] = {}
        self.started = time.time()

    def app(self) -> Starlette:
        post = {
            "/generate": self.generate,
            "/abort_request": self.abort,
            "/pause_generation": self.pause,
            "/continue_generation": self.resume,
            "/prepare_weights": self.prepare_weights,
            "/switch_weights": self.switch_weights,
            "/discard_weights": self.discard_weights,
        }
        get = {"/health": self.health, "/model_info": self.model_info, "/server_info": self.server_info}
        return Starlette(routes=WIRE.routes(post, get), lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(self._watch())
        yield
        watcher.cancel()

    async def _watch(self) -> None:
        while not self.engine.dead:
            await asyncio.sleep(WATCH_SECONDS)
        logger.error("vLLM's engine process has exited")
        self.end()

    async def generate(self, request: Request) -> Response:
        body = await WIRE.parse(request, GenerateRequest)
        answer, reader = self._begin(body)
        begun = asyncio.create_task(answer.changed.wait())
        gone = asyncio.create_task(disconnected(request.receive))
        streamed = False
        try:
            await asyncio.wait({begun if body.stream else reader, gone}, return_when=asyncio.FIRST_COMPLETED)
            failure = answer.failure  # an immediate rejection is not streamed
            if failure is not None:
                return WIRE.answer({"error": {"message": failure["message"]}}, failure["status_code"])
            if body.stream and not gone.done():
                streamed = True
                return StreamingResponse(self._events(answer, reader), media_type="text/event-stream")
            return WIRE.answer(answer.snapshot())
        finally:
            begun.cancel()
            gone.cancel()
            if not streamed:
                reader.cancel()

    def _begin(self, body: GenerateRequest) -> tuple[HostedAnswer, asyncio.Task[None]]:
        tokenizer = self.engine.tokenizer
        prompt = tokenizer.encode(body.text) if body.input_ids is None else body.input_ids
        options = sampling_options(body, prompt, self.engine.limits)
        most_tokens = new_tokens(body, len(prompt), self.engine.limits)
        rid = body.rid or uuid.uuid4().hex
        if rid in self.running:
            raise RunningRequestError(f"rid: {rid!r} is already running")
        live: Callable[[], int] = lambda: self.weights.live.number  # noqa: E731 (typed)
        answer = HostedAnswer(
            rid, body, prompt, most_tokens, live, lambda token: str(tokenizer.decode([token]))
        )
        self.running[rid] = answer
        return answer, asyncio.create_task(self._read(answer, prompt, options))

    async def _read(self, answer: HostedAnswer, prompt: list[int], options: dict[str, Any]) -> None:
        """Reads every token immediately, because its version is known only until the next switch."""
        try:
            async for delta in self.engine.generate(prompt, options, answer.rid):
                answer.add(delta)
        except RequestError as error:
            answer.fail(str(error), error.status)
        except Exception as error:  # only this request failed; a broken engine is detected elsewhere
            logger.exception("request %s failed", answer.rid)
            answer.fail(f"vLLM failed: {error}", 500)
        finally:
            del self.running[answer.rid]

    async def _events(self, answer: HostedAnswer, reader: asyncio.Task[None]) -> AsyncIterator[bytes]:
        try:
            while True:
                await answer.changed.wait()
                answer.changed.clear()
                last = answer.finish is not None
                yield WIRE.event(answer.snapshot())
                if last:
                    yield DONE
                    return
                await asyncio.sleep(pause_after_chunk(len(self.running), answer.count))
        finally:
            reader.cancel()

    async def abort(self, request: Request) -> Response:
        body = await WIRE.parse(request, AbortRequest)
        for rid in list(self.running) if body.abort_all else [str(body.rid)]:
            if rid in self.running:
                await self.engine.abort(rid)
        return WIRE.answer({"success": True, "message": "aborting"})

    async def pause(self, request: Request) -> Response:
        body = await WIRE.parse(request, PauseRequest)
        async with self.weights.lock:
            self.engine.paused = True
            await self.engine.pause(body.mode)
        return WIRE.answer({"success": True, "message": f"paused ({body.mode})"})

    async def resume(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        async with self.weights.lock:
            await self.engine.resume()
            self.engine.paused = False
        return WIRE.answer({"success": True, "message": "running"})

    async def prepare_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, PrepareRequest)
        checksum = await self.weights.prepare(body.model_path, body.version)
        return WIRE.answer({"success": True, "message": "prepared", "checksum": checksum})

    async def switch_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, SwitchRequest)
        try:
            checksum = await self.weights.switch(body.version)
        except BrokenEngineError:
            self.end()
            raise
        return WIRE.answer(
            {"success": True, "message": "live", "weight_version": body.weight_version, "checksum": checksum}
        )

    async def discard_weights(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        await self.weights.discard()
        return WIRE.answer({"success": True, "message": "no weights are prepared"})

    async def health(self, request: Request) -> Response:
        if self.engine.dead:
            return WIRE.answer({"status": "vLLM's engine process has exited"}, 503)
        return WIRE.answer({"status": "ok"})

    async def model_info(self, request: Request) -> Response:
        live, limits = self.weights.live, self.engine.limits
        return WIRE.answer(
            {
                "model_path": self.about["model_path"],
                "weights_path": live.path,
                "weight_version": str(live.number),
                "checksum": live.checksum,
                "max_context_length": limits.context_length,
                "vocab_size": limits.vocabulary,
                "dtype": self.engine.dtype,
                "is_generation": True,
                "backend": "vllm",
            }
        )

    async def server_info(self, request: Request) -> Response:
        load = {
            "running": len(self.running),
            "paused": self.engine.paused,
            "uptime_s": time.time() - self.started,
        }
        return WIRE.answer({**self.about, **load})


SEEDS = 1 << 63  # range of torch's generators; other values would crash vLLM's worker
COLDEST = 0.01
"""vLLM raises lower temperatures to this value."""


def sampling_options(request: GenerateRequest, prompt: list[int], limits: ModelLimits) -> dict[str, Any]:
    """Returns the arguments of vLLM's SamplingParams, and `json_schema` for its grammar.

    Raises:
        RequestError: an option has other semantics in vLLM.
    """
    _check(request, prompt, limits)
    params = request.sampling_params
    scored = request.return_logprob and request.logprob_start_len >= 0
    seed = params.seed if params.seed is not None else params.sampling_seed
    return {
        "max_tokens": max(1, new_tokens(request, len(prompt), limits)),
        "temperature": 0.0 if params.greedy else params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        "repetition_penalty": params.repetition_penalty,
        "logit_bias": params.logit_bias or None,
        "json_schema": params.json_schema,
        "seed": None if seed is None else seed % SEEDS,
        "stop": params.stop,
        "stop_token_ids": params.stop_token_ids,
        "ignore_eos": params.ignore_eos,
        "skip_special_tokens": params.skip_special_tokens,
        "include_stop_str_in_output": params.no_stop_trim,
        "logprobs": request.top_logprobs_num if request.return_logprob else None,
        "logprob_token_ids": (request.token_ids_logprob or None) if request.return_logprob else None,
        "prompt_logprobs": request.top_logprobs_num if scored else None,
        "flat_logprobs": True,
    }


def new_tokens(request: GenerateRequest, prompt: int, limits: ModelLimits) -> int:
    """Returns the maximum tokens of the answer; 0 requests only the prompt's log-probs."""
    return limits.new_tokens(prompt, request.sampling_params.max_new_tokens, least=1)


def _check(request: GenerateRequest, prompt: list[int], limits: ModelLimits) -> None:
    params, chosen = request.sampling_params, request.token_ids_logprob
    limits.check(request, prompt)
    if request.lora_path is not None:
        raise RequestError("lora_path: this engine does not support adapters")
    if params.json_schema is not None and request.resumed_tokens:
        raise RequestError("resumed_tokens: vLLM cannot resume an answer that follows a JSON schema")
    if chosen and (request.top_logprobs_num or request.logprob_start_len >= 0):
        raise RequestError(
            "token_ids_logprob: vLLM returns them only for sampled tokens, and only without top_logprobs_num"
        )
    if not params.greedy and params.temperature < COLDEST:
        raise RequestError(f"sampling_params.temperature: vLLM needs 0 (greedy) or at least {COLDEST}")


def serve(args: Any, request: dict[str, Any], version: str) -> int:
    """Loads the model, verifies it and serves until a signal; returns an exit status. vLLM's processes exit
    with it.

    Args:
        args: vLLM's AsyncEngineArgs.
        request: settings, see `child`.
        version: vLLM's version.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    return asyncio.run(_serve(args, request, version))


async def _serve(args: Any, request: dict[str, Any], version: str) -> int:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
    from vllm.v1.engine.async_llm import AsyncLLM

    def params(json_schema: str | None, **options: Any) -> SamplingParams:
        form = None if json_schema is None else StructuredOutputsParams(json=json_schema)
        return SamplingParams(output_kind=RequestOutputKind.DELTA, structured_outputs=form, **options)

    engine = HostedEngine(
        AsyncLLM.from_engine_args(args),
        params,
        (ValueError, VLLMClientError),
    )
    weights = HostedWeights(engine, request["probe_limit"])
    try:
        await engine.start()
        await weights.prove_first(args.model, request["version"], request["checksum"])
        failed = await _listen(
            engine, weights, {"model_path": request["model_path"], "version": version}, request
        )
    except WeightsError as error:
        print(f"engine: {error}", file=sys.stderr, flush=True)
        return 2
    finally:
        engine.shutdown()
    return 1 if failed else 0


async def _listen(
    engine: HostedEngine, weights: HostedWeights, about: dict[str, str], request: dict[str, Any]
) -> bool:
    """Serves until a signal (False) or until the engine is broken (True)."""
    broken = asyncio.Event()

    def end() -> None:
        broken.set()
        server.should_exit = True

    config = uvicorn.Config(
        VLLMServer(engine, weights, {**about, "pid": str(os.getpid())}, end).app(),
        host=request["host"],
        port=request["port"],
        log_level="warning",
        **SERVER_OPTIONS,
    )
    server = uvicorn.Server(config)
    await server.serve()
    return broken.is_set()


def _leave(number: int, frame: FrameType | None) -> None:
    """Signal handler: unwinds a running load, so that vLLM is shut down. Uvicorn has its own handlers while
    serving."""
    sys.exit(0)
