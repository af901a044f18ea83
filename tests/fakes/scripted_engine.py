"""An engine whose answers are scripted by token, over HTTP that breaks when a test requests it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeEngine:
    """SGLang's `/generate`, scripted. `say` are the ids that it samples for any prompt.

    A prompt that starts with an earlier prompt and a part of its answer is continued. After `die_after` tokens it
    drops all connections for `down` seconds. After `switch_after` tokens `version` increases by one. `tries` are the
    answers of tried versions. `adapters` are the loaded adapters (None: not supported), as in the embedded engine or,
    without `counts_adapters`, in SGLang. `score` is the log-prob of the ids after a position. `cached`: cached prompt
    tokens of each request. `incremental`: as with --incremental-streaming-output, an event has only new ids and
    log-probs, and `completion_tokens` counts all. `prompt_tokens`: reported length of prompts.
    """

    say: list[int] = field(default_factory=list)
    finish: dict[str, Any] = field(default_factory=lambda: {"type": "stop", "matched": 2})
    chunk: int = 3
    pause: float = 0.0
    die_after: int | None = None
    down: float = 0.3
    version: int = 3
    switch_after: int | None = None
    refuse: str | None = None
    incremental: bool = False
    prompt_tokens: int | None = None
    cached: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    adapters: dict[str, dict[str, Any]] | None = field(default_factory=dict)
    counts_adapters: bool = True
    tries: dict[int, list[int]] = field(default_factory=dict)
    score: Callable[[list[int], int], float] = lambda ids, start: -1.0
    tried: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    disconnects: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._prompts: list[tuple[list[int], list[int]]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> FakeEngine:
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)
        return self

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(20)

    def end(self) -> None:
        """Stops it permanently, with its thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def start_later(self, seconds: float) -> None:
        self._loop.call_soon_threadsafe(
            lambda: self._loop.call_later(seconds, lambda: self._loop.create_task(self._listen()))
        )

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _end(self) -> None:
        await self._close()
        for task in (left := asyncio.all_tasks() - {asyncio.current_task()}):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _die(self) -> None:
        await self._close()
        await asyncio.sleep(self.down)
        await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [
                    int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"
                ]
                body = json.loads(await reader.readexactly(length[0])) if length else {}
                await self._answer(head.split(b" ")[1].decode(), body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/abort_request":
            self.aborted.append(body["rid"])
        if path == "/try_weights":
            self._try(body, writer)
            return
        if path == "/load_lora_adapter":
            self._load(body, writer)
            return
        if path == "/generate" and body.get("lora_path", "") not in ("", *(self.adapters or ())):
            self._lacks(body["lora_path"], writer)
            return
        if path != "/generate":
            info: dict[str, Any] = {"weight_version": str(self.version), "checksum": "c0ffee"}
            self._whole(writer, 200, info | ({"adapters": True} if self.counts_adapters else {}))
            return
        if body["sampling_params"]["max_new_tokens"] == 0:
            self._score(body, writer)
            return
        self.requests.append(body)
        if self.refuse:
            self._whole(writer, 400, {"error": {"message": self.refuse}})
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        try:
            await self._stream(body, writer)
        except ConnectionError:
            self.disconnects += 1
            raise
        writer.write(b"0\r\n\r\n")

    def _load(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        name = body["lora_name"]
        if self.adapters is None:
            self._whole(writer, 404, {"message": "Not Found"})
        elif name in self.adapters and not self.counts_adapters:
            message = f"Failed to load LoRA adapter {name} because it is already loaded"
            self._whole(writer, 400, {"success": False, "error_message": message})
        else:
            self.adapters[name] = body
            self._whole(writer, 200, {"success": True})

    def _lacks(self, name: str, writer: asyncio.StreamWriter) -> None:
        """Sends the error of the embedded engine, or SGLang's error in a stream that ends with it."""
        if self.counts_adapters:
            self._whole(writer, 404, {"error": {"message": "not loaded", "code": "adapter_not_loaded"}})
            return
        error = {"error": {"message": f"Got LoRA adapter that has never been loaded: {name}\nAll loaded: []"}}
        data = b"data: " + json.dumps(error).encode() + b"\n\ndata: [DONE]\n\n"
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s"
            % (len(data), data)
        )

    def _score(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """Returns log-probs of a prompt's ids: `score` of the ids and their start, spread over them."""
        ids, start = body["input_ids"], body["logprob_start_len"]
        each = self.score(ids, start) / (len(ids) - start - 1)
        rows = [[None, ids[start], None], *([each, token, None] for token in ids[start + 1 :])]
        self._whole(writer, 200, {"meta_info": {"input_token_logprobs": rows}})

    def forget_prompts(self) -> None:
        """Clears the answers to earlier prompts."""
        self._prompts.clear()

    def _try(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.tried.append(body)
        ids = self.tries.get(int(body["weight_version"]))
        if ids is None:
            self._whole(writer, 404, {"message": "Not Found"})
            return
        one = {"ids": ids, "log_probs": [-0.1] * len(ids), "text": "", "ended": True}
        self._whole(writer, 200, {"answers": [one for _ in body["prompts"]]})

    def _whole(self, writer: asyncio.StreamWriter, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(data), data))

    def _plan(self, prompt: list[int]) -> tuple[list[int], int]:
        """Returns (the answer to this prompt, how much of it the prompt already contains)."""
        for known, answer in self._prompts:
            done = len(prompt) - len(known)
            if done > 0 and prompt[: len(known)] == known and prompt[len(known) :] == answer[:done]:
                return answer, done
        self._prompts.append((prompt, list(self.say)))
        return list(self.say), 0

    async def _stream(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        prompt = body["input_ids"]
        answer, done = self._plan(prompt)
        limit = body["sampling_params"]["max_new_tokens"]
        ids = answer[done:][:limit]
        finish = self.finish if len(answer) - done <= limit else {"type": "length"}
        spans = self._spans(done, len(ids))
        for start in range(0, len(ids), self.chunk):
            end = min(start + self.chunk, len(ids))
            if self.die_after is not None and done + end > self.die_after:
                self.die_after = None
                asyncio.get_running_loop().create_task(self._die())
                await asyncio.sleep(self.down)
                return
            meta: dict[str, Any] = {"finish_reason": finish if end == len(ids) else None}
            meta["cached_tokens"] = self.cached + done
            meta["weight_version"] = str([v for v, s, e in spans if s < end][-1])
            meta["output_token_logprobs"] = [
                [self.log_prob(len(prompt) + index + 1, ids[index]), ids[index], None] for index in range(end)
            ]
            meta["output_top_logprobs"] = [[[-0.5, token, None], [-1.5, 7, None]] for token in ids[:end]]
            if end == len(ids):
                meta["weight_versions"] = [{"version": str(v), "start": s, "end": e} for v, s, e in spans]
            first = start if self.incremental else 0
            for name in ("output_token_logprobs", "output_top_logprobs"):
                meta[name] = meta[name][first:]
            if self.incremental:
                meta["completion_tokens"] = end
            if self.prompt_tokens is not None:
                meta["prompt_tokens"] = self.prompt_tokens
            data = (
                b"data: " + json.dumps({"output_ids": ids[first:end], "meta_info": meta}).encode() + b"\n\n"
            )
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            if writer.transport.is_closing():
                raise ConnectionResetError
            if self.pause:
                await asyncio.sleep(self.pause)
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n")

    @staticmethod
    def log_prob(position: int, token: int) -> float:
        """Returns the log-prob of a token, computed from its position in prompt and answer."""
        return -((position * 7 + token * 3) % 97) / 97 - 0.001

    def _spans(self, done: int, count: int) -> list[tuple[int, int, int]]:
        at = None if self.switch_after is None else max(self.switch_after - done, 0)
        if at is None or at >= count:
            return [(self.version, 0, count)]
        return [span for span in ((self.version, 0, at), (self.version + 1, at, count)) if span[1] < span[2]]
