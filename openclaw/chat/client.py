"""HTTP client of the gateway: streamed answers, feedback, and the status of turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from openclaw.errors import ClawError

CONNECT_SECONDS = 5.0


class ChatError(ClawError):
    """The server cannot be reached or rejects a request; the message names the remedy. `status`: HTTP status, if
    any."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class StreamedAnswer:
    """An answer in progress. `thinking`: the reasoning, separate from the text."""

    completion_id: str = ""
    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None


class Server:
    """An OpenClaw-RL server. `url` with or without `/v1`; errors are ChatErrors. `person`: who talks, as the `user` of
    each request; None: not named."""

    def __init__(
        self, url: str, api_key: str | None, timeout_s: float = 600.0, person: str | None = None
    ) -> None:
        self._person = {"user": person} if person else {}
        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_SECONDS)
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)
        except httpx.InvalidURL as error:
            raise ChatError(f"--url {url} is not an address: {error}") from error

    def close(self) -> None:
        self._http.close()

    def models(self) -> list[dict[str, Any]]:
        """Returns `[{"id", "max_model_len", ...}]`, at least one."""
        models = self._json("GET", "/v1/models").get("data")
        if not isinstance(models, list) or not models:
            raise ChatError(f"{self.url}/v1/models names no model: is an OpenClaw-RL server there?")
        return models

    def status(self) -> dict[str, Any]:
        return self._json("GET", "/status")

    def turn(self, completion_id: str) -> dict[str, Any] | None:
        """Returns the status of a turn; None while the server has no record of it."""
        try:
            return self._json("GET", f"/v1/turns/{completion_id}")
        except ChatError:
            return None

    def newest_turns(self, admin_key: str | None, limit: int = 100) -> list[dict[str, Any]]:
        """Returns the status of the newest turns of all clients, newest first; `admin_key`: needed if the server has
        one."""
        headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        turns: list[dict[str, Any]] = self._json("GET", f"/admin/turns?limit={limit}", headers=headers)[
            "data"
        ]
        return turns

    def feedback(self, completion_id: str, **word: Any) -> str:
        """Sends a rating or text about an answer; returns the effect reported by the server."""
        body = {"completion_id": completion_id, **self._person, **word}
        return str(self._json("POST", "/v1/feedback", json=body)["status"])

    def end_session(self, session_id: str) -> None:
        headers = {"X-Session-Id": session_id, "X-Session-Done": "1"}
        self._json("POST", "/v1/chat/completions", headers=headers, json={"messages": [], **self._person})

    def chat(
        self, messages: list[dict[str, str]], session_id: str, train: bool = True, **body: Any
    ) -> Iterator[StreamedAnswer]:
        """Yields the same answer after each received piece."""
        headers = {"X-Session-Id": session_id} | ({} if train else {"X-Train": "off"})
        request = {"messages": messages, "stream": True, **self._person, **body}
        answer = StreamedAnswer()
        try:
            with self._http.stream("POST", "/v1/chat/completions", headers=headers, json=request) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refused(response)
                for line in response.iter_lines():
                    if line.startswith("data:") and line[5:].strip() != "[DONE]":
                        _take(answer, orjson.loads(line[5:]))
                        yield answer
        except httpx.HTTPError as error:
            raise self._gone(error) from error
        if answer.finish_reason is None:
            raise ChatError("the answer was interrupted and is not stored as complete; ask again")

    def side_answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a whole answer to a request that is neither stored, nor trained on, nor judged."""
        headers = {"X-Train": "off", "X-Turn-Type": "side", "X-Memory": "off"}
        return self._json("POST", "/v1/chat/completions", headers=headers, json=body)

    def admin(self, method: str, path: str, admin_key: str | None, **request: Any) -> dict[str, Any]:
        """Sends a request to an administrator route and returns the answer; `admin_key`: needed if the server has
        one."""
        headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        try:
            return self._json(method, path, headers=headers, **request)
        except ChatError as error:
            if error.status == 401:
                raise ChatError(f"{self.url} needs its admin key: set OPENCLAW_ADMIN_KEY", 401) from error
            raise

    def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._gone(error) from error
        if response.status_code != 200:
            raise _refused(response)
        try:
            content: dict[str, Any] = response.json()
        except ValueError:
            message = f"{self.url}{path} did not answer in JSON: is an OpenClaw-RL server there?"
            raise ChatError(message) from None
        return content

    def _gone(self, error: httpx.HTTPError) -> ChatError:
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return ChatError(
            f"no answer from {self.url} ({cause}); is the server running? Give its address with --url"
        )


def _take(answer: StreamedAnswer, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        raise ChatError(str(chunk["error"].get("message", chunk["error"])))
    answer.completion_id = chunk.get("id", answer.completion_id)
    for choice in chunk.get("choices", ()):
        delta = choice.get("delta", {})
        answer.text += delta.get("content") or ""
        answer.thinking += delta.get("reasoning_content") or ""
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason


def _refused(response: httpx.Response) -> ChatError:
    try:
        message = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = response.text[:300] or "no reason given"
    advice = "; give the server's key with --api-key or SGLANG_API_KEY" if response.status_code == 401 else ""
    return ChatError(
        f"the server refused (HTTP {response.status_code}): {message}{advice}", response.status_code
    )
