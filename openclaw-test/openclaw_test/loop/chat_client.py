"""A small streaming chat client that measures user-visible performance: time to the first token, pauses, failures."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Answer:
    """One answer as the client saw it.

    Attributes:
        text: the content deltas joined.
        first_token_s: seconds from the request to the first content delta, None when there was none.
        longest_gap_s: longest silence in seconds between two deltas of this answer.
        finish_reason: from the server; None if the stream was interrupted.
        error: the failure; None if the answer is complete.
    """

    text: str = ""
    first_token_s: float | None = None
    longest_gap_s: float = 0.0
    finish_reason: str | None = None
    completion_id: str | None = None
    error: str | None = None


@dataclass
class Tally:
    """Totals of a run: requests sent, requests failed, the longest pause inside an answer in seconds."""

    requests: int = 0
    failed: int = 0
    longest_gap_s: float = 0.0
    errors: list[str] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        self.requests += 1
        self.longest_gap_s = max(self.longest_gap_s, answer.longest_gap_s)
        if answer.error is not None:
            self.failed += 1
            self.errors.append(answer.error)


class ChatClient:
    """Talks to `{base_url}/v1`; every request streams. Use it as an async context manager."""

    def __init__(
        self, base_url: str, *, api_key: str = "", timeout_s: float = 120.0, connections: int = 128
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._http = httpx.AsyncClient(
            base_url=base_url.rstrip("/"), headers=headers, timeout=timeout_s, limits=limits, trust_env=False
        )
        self.tally = Tally()

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def status(self) -> dict[str, Any]:
        """Returns `GET /status` as a dictionary; raises httpx.HTTPError."""
        response = await self._http.get("/status")
        response.raise_for_status()
        result: dict[str, Any] = response.json()
        return result

    async def chat(
        self,
        messages: list[dict[str, Any]],
        *,
        session_id: str | None = None,
        train: bool = True,
        **body: Any,
    ) -> Answer:
        """Streams one answer. A failure is recorded in the answer and in `tally`, not raised."""
        headers = {"X-Session-Id": session_id} if session_id else {}
        if not train:
            headers["X-Train"] = "off"
        answer = Answer()
        try:
            await self._stream(answer, headers, {"messages": messages, "stream": True, **body})
            if answer.finish_reason is None:
                answer.error = "the stream ended without a finish reason"
        except (httpx.HTTPError, ValueError) as error:
            answer.error = f"{type(error).__name__}: {error}"
        self.tally.add(answer)
        return answer

    async def end_session(self, session_id: str) -> None:
        """Ends a session at the server."""
        headers = {"X-Session-Id": session_id, "X-Session-Done": "1"}
        response = await self._http.post("/v1/chat/completions", headers=headers, json={"messages": []})
        response.raise_for_status()

    async def _stream(self, answer: Answer, headers: dict[str, str], body: dict[str, Any]) -> None:
        started = last = time.perf_counter()
        async with self._http.stream("POST", "/v1/chat/completions", headers=headers, json=body) as response:
            if response.status_code != 200:
                detail = (await response.aread()).decode(errors="replace")
                raise ValueError(f"HTTP {response.status_code}: {detail[:300]}")
            async for chunk in sse_events(response):
                now = time.perf_counter()
                if answer.first_token_s is not None:
                    answer.longest_gap_s = max(answer.longest_gap_s, now - last)
                last = now
                if "error" in chunk:
                    raise ValueError(str(chunk["error"]))
                self._take(answer, chunk, now - started)

    @staticmethod
    def _take(answer: Answer, chunk: dict[str, Any], elapsed_s: float) -> None:
        answer.completion_id = chunk.get("id", answer.completion_id)
        for choice in chunk.get("choices", ()):
            content = choice.get("delta", {}).get("content")
            if content:
                answer.text += content
                if answer.first_token_s is None:
                    answer.first_token_s = elapsed_s
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason


async def event_lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yields the lines of a stream; httpx's own method would also split at Unicode line ends, which sampled text may
    contain."""
    rest = ""
    async for piece in response.aiter_text():
        *whole, rest = (rest + piece).split("\n")
        for line in whole:
            yield line


async def sse_events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yields the JSON payloads of a server-sent-event stream up to `[DONE]`."""
    async for line in event_lines(response):
        if not line.startswith("data:"):
            continue
        payload = line[5:].strip()
        if payload == "[DONE]":
            return
        yield json.loads(payload)
