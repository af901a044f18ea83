"""Samples one answer: sends token ids, and returns token ids and log-probs exactly as engines sampled them.

If an engine fails or is not ready, the generation waits, and continues after the ids received so far, on the same
engine or another one. Tokens that the caller has received stay valid.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from claw_base.image_marks import with_single_marks
from openclaw.engine.adapters import Adapter
from openclaw.engine.client import LAST, REFUSED, SKIPPED, AdapterNotLoaded, EngineClient
from openclaw.errors import ClientError, EngineError

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class SentPicture:
    """A picture of a prompt: the tokens [start, start + length) stand for it; `url`: its data URL."""

    start: int
    length: int
    url: str


@dataclass(frozen=True)
class EngineRequest:
    """Parameters of one generation.

    log_probs: whether to return log-probs of the sampled tokens; top_log_probs: number of best tokens to return.
    join_key: the same for every attempt of a request, also through another gateway; repeated: it was sent before.
    adapter: the adapter that answers; None: the base model.
    is_low_priority: engines that support priorities serve others first.
    call_id: token with which a tool call begins. An answer that begins with it need not follow `json_schema`.
    pictures: those in the prompt, in order.
    """

    id: str
    prompt_ids: list[int]
    max_new_tokens: int
    sampling: dict[str, Any]
    stop_ids: frozenset[int]
    log_probs: bool = True
    top_log_probs: int = 0
    join_key: str | None = None
    repeated: bool = False
    adapter: Adapter | None = None
    is_low_priority: bool = False
    call_id: int | None = None
    pictures: tuple[SentPicture, ...] = ()


@dataclass(frozen=True, slots=True)
class Increment:
    """New tokens: ids [t], log-probs [t] in nats and, if requested, the most likely (log-prob, id) pairs [t][k]."""

    ids: list[int]
    log_probs: list[float]
    top: list[list[tuple[float, int]]]


class Generation:
    """One answer that is being sampled.

    Args:
        affinity: session id; generations with the same value prefer the same engine.

    Attributes:
        ids: [T] sampled token ids of all attempts.
        log_probs: [T] their log-probs in nats.
        spans: [(weight version, start, end)] over `ids`. Ids of an engine that failed before it reported a version have
            no span.
        finish_reason: "stop" or "length" when the answer is complete; None before.
        matched: stop id or stop string that ended the answer.
        cached: number of prompt tokens that were in the engine's cache.
    """

    def __init__(self, engines: EngineClient, request: EngineRequest, affinity: str) -> None:
        self._engines = engines
        self._request = request
        self._affinity = affinity
        self._urls = engines.preferred(affinity)
        self._attempt_start = 0
        self._may_call = request.call_id is not None and "json_schema" in request.sampling
        """Whether the answer is sampled without the schema because it may be a tool call."""
        self._rid = request.id
        self._fixed_version: int | None = None
        """Version of the adapter that answers, for engines that report only the base model's version."""
        self._closed_spans: list[tuple[int, int, int]] = []
        self._open_spans: list[tuple[int, int, int]] = []
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.finish_reason: str | None = None
        self.matched: int | str | None = None
        self.cached = 0

    def with_prompt(self, prompt_ids: list[int], room: int) -> Generation:
        """Returns a new generation for another prompt with the same parameters, of at most `room` tokens."""
        limit = min(self._request.max_new_tokens, room)
        request = replace(self._request, prompt_ids=prompt_ids, max_new_tokens=limit)
        return Generation(self._engines, request, self._affinity)

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """Returns (weight version, start, end) of consecutive parts of `ids`."""
        return _merged(self._closed_spans + self._open_spans)

    async def run(self) -> AsyncGenerator[Increment, None]:
        """Yields increments until the answer is complete.

        Raises ClientError if an engine rejects the request. All other failures are retried until the caller stops.
        """
        pause, attempt = FIRST_PAUSE_SECONDS, 0
        while self.finish_reason is None:
            url, before = self._urls[attempt % len(self._urls)], len(self.ids)
            try:
                async with aclosing(self._attempt(url)) as increments:
                    async for increment in increments:
                        yield increment
            except EngineError as error:
                self._engines.restarts += 1
                log.warning(
                    "generation %s is retried after %d tokens: %s", self._request.id, len(self.ids), error
                )
                self._end_of_attempt()
                pause = FIRST_PAUSE_SECONDS if len(self.ids) > before else pause
                if self.finish_reason is None:
                    await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                attempt += 1

    async def _attempt(self, url: str) -> AsyncGenerator[Increment, None]:
        done, body = False, self._body(url)
        try:
            adapter = self._request.adapter
            stream = self._engines.stream if adapter is None or adapter.is_base else self._answers
            async with aclosing(stream(url, body)) as answers:
                async for answer in answers:
                    increment = self._take(answer)
                    if self._may_call and self.ids and self.ids[0] != self._request.call_id:
                        self._begin_with_schema()
                        return
                    if increment.ids:
                        yield increment
                    self._finish(answer["meta_info"].get("finish_reason"))
                    done = self.finish_reason is not None
            if not done:
                raise EngineError(f"{url}: the stream ended before the answer was complete")
        except EngineError:
            done = True
            raise
        finally:
            if not done:
                self._engines.abort(url, body["rid"])

    async def _answers(self, url: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the events of `EngineClient.stream` for the request's adapter, which is loaded first if necessary."""
        adapter = self._request.adapter
        assert adapter is not None
        counts = await self._engines.counts_adapters(url)
        self._fixed_version = None if counts else adapter.version or 0
        body["lora_path"] = adapter.name if counts else adapter.versioned_name
        try:
            async with aclosing(self._engines.stream(url, body)) as answers:
                async for answer in answers:
                    yield answer
            return
        except AdapterNotLoaded:
            await self._engines.load_adapter(url, adapter)
        async with aclosing(self._engines.stream(url, body)) as answers:
            async for answer in answers:
                yield answer

    def _begin_with_schema(self) -> None:
        """Drops the tokens of an answer that is not a tool call, so that the next attempt follows the schema. That
        attempt has another request id, because the engine may still run the first one."""
        self._may_call, self._rid = False, f"{self._rid}-schema"
        self.ids, self.log_probs, self._open_spans = [], [], []

    def _body(self, url: str) -> dict[str, Any]:
        request, sampling = self._request, self._request.sampling
        if self._may_call:
            sampling = {name: value for name, value in sampling.items() if name != "json_schema"}
        self._attempt_start = len(self.ids)
        join: dict[str, Any] = {}
        if request.join_key is not None and not self.ids and url in self._engines.joining:
            join = {"join_key": request.join_key, "join": request.repeated}
        if self.ids and "json_schema" in sampling:
            if url not in self._engines.joining:
                message = "the engine failed during an answer with response_format, which cannot be continued; retry"
                raise ClientError(message, status=503, kind="server_error")
            join = {"resumed_tokens": len(self.ids)}
        ids = request.prompt_ids + self.ids if self.ids else request.prompt_ids
        return {
            **join,
            **prompt_fields(ids, request.pictures),
            "sampling_params": {
                **sampling,
                "max_new_tokens": request.max_new_tokens - len(self.ids),
                "stop_token_ids": list(request.stop_ids),
                "skip_special_tokens": False,
            },
            "return_logprob": request.log_probs,
            "top_logprobs_num": request.top_log_probs,
            "stream": True,
            "rid": self._rid,
            **(LAST if request.is_low_priority else {}),
        }

    def _take(self, answer: dict[str, Any]) -> Increment:
        """Adds the new tokens of an event, and returns them. Raises EngineError if the event is inconsistent."""
        have = len(self.ids) - self._attempt_start - answer[SKIPPED]
        if have < 0:
            raise EngineError(f"the engine skipped {-have} ids of the answer")
        try:
            meta = answer["meta_info"]
            self._check_prompt(meta)
            ids = answer["output_ids"][have:]
            scored = meta["output_token_logprobs"][have : have + len(ids)] if self._request.log_probs else []
            log_probs = [float(entry[0]) for entry in scored]
            top = self._top(meta, have, len(ids))
            if not self.ids:  # later attempts find this answer's own tokens in the cache
                self.cached = min(int(meta.get("cached_tokens") or 0), len(self._request.prompt_ids))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise EngineError(f"an answer that is not an SGLang answer: {error!r}") from error
        if self._request.log_probs and [entry[1] for entry in scored] != ids:
            raise EngineError("an answer has different numbers of ids and log-probs")
        start = len(self.ids)
        self.ids += ids
        self.log_probs += log_probs
        self._add_spans(meta, start)
        return Increment(ids, log_probs, top)

    def _check_prompt(self, meta: dict[str, Any]) -> None:
        """Raises ClientError if the engine reads other tokens for the prompt's pictures than will be trained."""
        tokens = len(self._request.prompt_ids) + self._attempt_start
        if self._request.pictures and meta.get("prompt_tokens", tokens) != tokens:
            raise ClientError(
                f"the engine reads {meta['prompt_tokens']} tokens of a prompt with pictures that has {tokens}: its model "
                "folder processes pictures in another way than the gateway's",
                status=502,
                kind="server_error",
            )

    def _top(self, meta: dict[str, Any], have: int, count: int) -> list[list[tuple[float, int]]]:
        if not self._request.top_log_probs:
            return []
        return [
            [(entry[0], entry[1]) for entry in best or []]
            for best in meta["output_top_logprobs"][have : have + count]
        ]

    def _add_spans(self, meta: dict[str, Any], start: int) -> None:
        exact = meta.get("weight_versions")
        if self._fixed_version is not None:
            self._open_spans = [(self._fixed_version, self._attempt_start, len(self.ids))]
        elif exact:
            first = self._attempt_start
            self._open_spans = [(_version(s["version"]), first + s["start"], first + s["end"]) for s in exact]
        elif len(self.ids) > start and meta.get("weight_version") is not None:
            self._open_spans = _merged(
                [*self._open_spans, (_version(meta["weight_version"]), start, len(self.ids))]
            )

    def _finish(self, finish: dict[str, Any] | None) -> None:
        if finish is None:
            return
        kind = finish.get("type")
        if kind == "abort":
            status = finish.get("status_code")
            if status in REFUSED:
                raise ClientError(f"the engine rejected the request: {finish.get('message')}")
            raise EngineError(f"the engine aborted the request: {finish.get('message', 'no reason given')}")
        self.finish_reason = "length" if kind == "length" else "stop"
        self.matched = finish.get("matched")

    def _end_of_attempt(self) -> None:
        """Keeps the received tokens after a failure. The answer is complete if its last id is a stop id, or it has the
        maximum length: only the finish event was lost."""
        self._closed_spans, self._open_spans = self.spans, []
        if self.ids and self.ids[-1] in self._request.stop_ids:
            self.finish_reason, self.matched = "stop", self.ids[-1]
        elif len(self.ids) >= self._request.max_new_tokens:
            self.finish_reason = "length"


def _version(version: Any) -> int:
    """Returns the weight version as an integer; 0 for "default", which engines report before the first update."""
    try:
        return int(version)
    except ValueError:
        return 0


def _merged(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merges adjacent spans of the same version."""
    merged: list[tuple[int, int, int]] = []
    for version, start, end in spans:
        if start == end:
            continue
        if merged and merged[-1][0] == version and merged[-1][2] == start:
            merged[-1] = (version, merged[-1][1], end)
        else:
            merged.append((version, start, end))
    return merged


def prompt_fields(ids: list[int], pictures: Sequence[SentPicture]) -> dict[str, Any]:
    """Returns the fields of an engine request for a prompt's ids [T]: SGLang's, which the embedded engine takes too.

    They are `input_ids` with one mark for each picture, and `image_data`.

    Raises:
        ClientError: the model sampled a mark earlier in this conversation. An engine would take it for a picture.
    """
    if not pictures:
        return {"input_ids": ids}
    try:
        marked = with_single_marks(ids, [(picture.start, picture.length) for picture in pictures])
    except ValueError as error:
        raise ClientError(
            "messages: an earlier answer contains the token that marks a picture; begin a new conversation",
            "messages",
        ) from error
    return {"input_ids": marked, "image_data": [picture.url for picture in pictures]}
