"""HTTP routes of a rented engine: the protocol of the embedded engine, forwarded to a service. Does not import
torch."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from claw_base.run_folder.usage import INTERVAL, Meter
from slime.engines.json_http import DONE, JsonHttp, disconnected
from slime.engines.requests import (
    AbortRequest,
    EmptyRequest,
    GenerateRequest,
    PrepareRequest,
    RequestError,
    RunningRequestError,
    SwitchRequest,
    TryRequest,
    WeightsError,
)
from slime.rented.engine.answer import RentedAnswer
from slime.rented.engine.asking import Outage, Superseded, Turns, asked
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.engine.weights import RentedVersion, RentedVersions
from slime.rented.service import SamplingRequest, ServiceAway, ServiceRefuses

WIRE = JsonHttp(orjson.loads, orjson.dumps)
ABORTED = {"type": "abort", "message": "aborted by request"}


class RentedServer:
    """HTTP routes over the weight versions at one service.

    Args:
        chunk: tokens requested at a time, so that an answer streams; 0: the whole answer at once.
        most_running: maximum concurrent requests at the service; others wait.
    """

    def __init__(
        self, versions: RentedVersions, folder: ModelFolder, meter: Meter, chunk: int, most_running: int
    ) -> None:
        self.versions, self.folder, self.meter, self.chunk = versions, folder, meter, chunk
        self.outage = Outage()
        self.turns = Turns()
        self.running: dict[str, asyncio.Event] = {}
        self.places = asyncio.Semaphore(most_running)
        self.started = time.time()

    def app(self) -> Starlette:
        post = {
            "/generate": self.generate,
            "/abort_request": self.abort,
            "/prepare_weights": self.prepare_weights,
            "/switch_weights": self.switch_weights,
            "/discard_weights": self.discard_weights,
            "/try_weights": self.try_weights,
            "/release_memory_occupation": self.nothing,
            "/resume_memory_occupation": self.nothing,
        }
        get = {"/health": self.health, "/model_info": self.model_info, "/server_info": self.server_info}
        return Starlette(routes=WIRE.routes(post, get), lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        counting = asyncio.create_task(self._count())
        yield
        counting.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await run_in_threadpool(self.meter.flush)

    async def generate(self, request: Request) -> Response:
        body = await WIRE.parse(request, GenerateRequest)
        prompt, most = check_request(body, self.folder)
        rid = body.rid or uuid.uuid4().hex
        if rid in self.running:
            raise RunningRequestError(f"rid: {rid!r} is already running")
        self.running[rid] = asyncio.Event()
        answers = self._answers(rid, body, prompt, most, request)
        try:
            first = await anext(answers)
        except ServiceRefuses as error:
            raise RequestError(f"the service rejected the request: {error}") from error
        if body.stream:
            return StreamingResponse(_events(first, answers), media_type="text/event-stream")
        last = first
        async with aclosing(answers):
            async for answer in answers:
                last = answer
        return WIRE.answer(last)

    async def _answers(
        self, rid: str, body: GenerateRequest, prompt: list[int], most: int, request: Request
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the growing answer until it is complete, aborted, or the client disconnects."""
        first = self.versions.live
        answer = RentedAnswer(rid, body, prompt, first.number)
        ended = [
            asyncio.create_task(self.running[rid].wait()),
            asyncio.create_task(disconnected(request.receive)),
        ]
        try:
            async with self.places:
                while answer.finish is None:
                    asking = asyncio.create_task(self._in_turn(first, answer, body, prompt, most))
                    await asyncio.wait([asking, *ended], return_when=asyncio.FIRST_COMPLETED)
                    if not asking.done():
                        asking.cancel()
                        answer.finish = ABORTED
                    else:
                        first = asking.result()
                    yield answer.snapshot(
                        self.folder.text(answer.ids, body.sampling_params.skip_special_tokens)
                    )
        finally:
            del self.running[rid]
            for task in ended:
                task.cancel()

    async def _in_turn(self, first: RentedVersion, answer: RentedAnswer, *asked: Any) -> RentedVersion:
        """Extends an answer with the version that it started with, if the service can still serve that version;
        returns the version that answered."""
        async with self.turns.question():
            version = self.versions.live if self.versions.service.exclusive else first
            while True:
                try:
                    await self._extend(version, answer, *asked)
                    return version
                except Superseded:
                    version = self.versions.live

    async def _extend(
        self,
        version: RentedVersion,
        answer: RentedAnswer,
        body: GenerateRequest,
        prompt: list[int],
        most: int,
    ) -> None:
        """Requests the next tokens from the service, and before them the prompt's log-probs if requested."""
        params = body.sampling_params

        def is_superseded() -> bool:
            return self.versions.live is not version

        if body.return_logprob and body.logprob_start_len >= 0 and not answer.ids and len(prompt) > 1:
            answer.prompt_log_probs = await asked(
                version, lambda sampler: sampler.log_probs(prompt), self.outage, is_superseded
            )
            self.meter.add(prefill=len(prompt))
        if not most:
            answer.version, answer.finish = version.number, {"type": "length", "length": 0}
            return
        stops = set(params.stop_token_ids) | (set() if params.ignore_eos else self.folder.stop_ids)
        left = most - len(answer.ids)
        sampling = SamplingRequest(
            prompt=prompt + answer.ids,
            most=min(self.chunk, left) if self.chunk else left,
            temperature=0.0 if params.greedy else params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            stop_ids=tuple(sorted(stops)),
            seed=params.seed if params.seed is not None else params.sampling_seed,
        )
        sampled = await asked(version, lambda sampler: sampler.sample(sampling), self.outage, is_superseded)
        self.meter.add(prefill=len(sampling.prompt), sample=len(sampled.ids))
        answer.add(sampled, most, self.folder, version.number)

    async def abort(self, request: Request) -> Response:
        body = await WIRE.parse(request, AbortRequest)
        for rid, ended in self.running.items():
            if body.abort_all or rid == body.rid:
                ended.set()
        return WIRE.answer({"success": True, "message": "aborting"})

    async def prepare_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, PrepareRequest)
        try:
            prepared = await run_in_threadpool(self.versions.prepare, body.model_path, body.version)
        except ServiceAway as error:
            return WIRE.answer({"success": False, "message": f"the service does not answer: {error}"}, 503)
        return WIRE.answer({"success": True, "message": "prepared", "checksum": prepared.weights.checksum})

    async def switch_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, SwitchRequest)
        try:
            if self.versions.service.exclusive:
                async with self.turns.load():
                    live = await run_in_threadpool(self.versions.switch, body.version)
            else:
                live = self.versions.switch(body.version)
        except ServiceAway as error:
            return WIRE.answer({"success": False, "message": f"the service does not answer: {error}"}, 503)
        version = {"weight_version": str(live.number), "checksum": live.weights.checksum}
        return WIRE.answer({"success": True, "message": "live", **version, "num_paused_requests": 0})

    async def discard_weights(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        self.versions.discard()
        return WIRE.answer({"success": True, "message": "nothing is prepared"})

    async def try_weights(self, request: Request) -> Response:
        """Answers prompts with a version that need not be live."""
        body = await WIRE.parse(request, TryRequest)
        version = self.versions.named(body.version, body.model_path)
        if self.versions.service.exclusive and version is not self.versions.live:
            raise WeightsError(
                f"version {body.version} is not loaded, and the service can sample from only one version at a time"
            )
        try:
            answers = await asyncio.gather(*(self._try(version, ids, body) for ids in body.prompts))
        except ServiceRefuses as error:
            raise WeightsError(f"the service rejected version {body.version}: {error}") from error
        return WIRE.answer({"success": True, "message": "tried", "answers": answers})

    async def _try(self, version: RentedVersion, prompt: list[int], body: TryRequest) -> dict[str, Any]:
        max_new = self.folder.limits.new_tokens(len(prompt), None)
        max_new = min(body.max_new_tokens, self.folder.limits.context_length - len(prompt)) if max_new else 0
        sampling = SamplingRequest(
            prompt, max_new, temperature=body.temperature, stop_ids=tuple(sorted(self.folder.stop_ids))
        )
        async with self.places:
            sampled = await asked(version, lambda sampler: sampler.sample(sampling), self.outage)
        self.meter.add(prefill=len(prompt), sample=len(sampled.ids))
        text = self.folder.text(sampled.ids, skip_special_tokens=True)
        return {"ids": sampled.ids, "log_probs": sampled.log_probs, "text": text, "ended": sampled.ended}

    async def nothing(self, request: Request) -> Response:
        """Does nothing: this process holds no model memory to release."""
        return WIRE.answer({"success": True, "message": "the model is not on this machine"})

    async def health(self, request: Request) -> Response:
        """Reports healthy even while the service is unavailable, because restarting this process would not help."""
        return WIRE.answer({"status": "ok" if self.outage.since is None else "the service does not answer"})

    async def model_info(self, request: Request) -> Response:
        live, limits = self.versions.live, self.folder.limits
        return WIRE.answer(
            {
                "model_path": self.folder.path,
                "weights_path": live.folder or self.folder.path,
                "weight_version": str(live.number),
                "checksum": live.weights.checksum,
                "forgotten": live.forgotten,
                "max_context_length": limits.context_length,
                "vocab_size": limits.vocabulary,
                "is_generation": True,
                "backend": "rented",
            }
        )

    async def server_info(self, request: Request) -> Response:
        load = {
            "running": len(self.running),
            "uptime_s": time.time() - self.started,
            "tokens": self.meter.tokens,
        }
        return WIRE.answer({"model": self.versions.model, "stream_tokens": self.chunk, **load})


async def _events(first: dict[str, Any], rest: AsyncGenerator[dict[str, Any], None]) -> AsyncIterator[bytes]:
    yield WIRE.event(first)
    async with aclosing(rest):
        async for answer in rest:
            yield WIRE.event(answer)
    yield DONE


def check_request(request: GenerateRequest, folder: ModelFolder) -> tuple[list[int], int]:
    """Returns the prompt's ids, and the maximum number of new ones.

    Raises:
        RequestError: an option that services do not support, or a prompt that is too long.
    """
    params = request.sampling_params
    unsupported = {
        "lora_path": request.lora_path is not None,
        "top_logprobs_num": request.top_logprobs_num > 0,
        "token_ids_logprob": bool(request.token_ids_logprob),
        "return_text_in_logprobs": request.return_text_in_logprobs,
        "sampling_params.min_p": params.min_p > 0,
        "sampling_params.frequency_penalty, presence_penalty, repetition_penalty, logit_bias": params.changes_logits,
        "sampling_params.stop without a tokenizer.json": bool(params.stop) and folder.tokenizer is None,
    }
    for name, requested in unsupported.items():
        if requested:
            raise RequestError(f"{name}: rented models do not support it; remove it from the request")
    if request.input_logprob_temperature != 1.0:
        raise RequestError("input_logprob_temperature: services report log-probs at temperature 1")
    prompt = _prompt(request, folder)
    folder.limits.check(request, prompt)
    return prompt, folder.limits.new_tokens(len(prompt), params.max_new_tokens)


def _prompt(request: GenerateRequest, folder: ModelFolder) -> list[int]:
    if request.input_ids is not None:
        return request.input_ids
    if folder.tokenizer is None:
        raise RequestError("text: the model folder has no tokenizer.json, send input_ids")
    ids: list[int] = folder.tokenizer.encode(request.text or "").ids
    return ids
