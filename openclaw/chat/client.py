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
    """The server is unreachable or rejects a request. `status`: HTTP status of the response, if there is one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class StreamedAnswer:
    """An answer in progress. `thinking`: its reasoning, which is not part of `text`."""

    completion_id: str = ""
    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None


class Server:
    """An OpenClaw-RL server. Methods raise ChatError.

    Args:
        url: address, with or without `/v1`.
        person: `user` of each request; None: none.
    """

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
            raise ChatError(f"--url {url} is not a valid URL: {error}") from error

    def close(self) -> None:
        self._http.close()

    def models(self) -> list[dict[str, Any]]:
        """Returns the served models, at least one: `[{"id", "max_model_len", ...}]`."""
        models = self._json("GET", "/v1/models").get("data")
        if not isinstance(models, list) or not models:
            raise ChatError(
                f"{self.url}/v1/models lists no models: check that --url is the address of an OpenClaw-RL server"
            )
        return models

    def status(self) -> dict[str, Any]:
        """Returns counts and versions, as `GET /status`."""
        return self._json("GET", "/status")

    def turn(self, completion_id: str) -> dict[str, Any] | None:
        """Returns the status of a turn; None while the server has not stored it."""
        try:
            return self._json("GET", f"/v1/turns/{completion_id}")
        except ChatError:
            return None

    def newest_turns(self, admin_key: str | None, limit: int = 100) -> list[dict[str, Any]]:
        """Returns the status of the newest turns of all clients, newest first.

        `admin_key`: required if the server has one.
        """
        headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        turns: list[dict[str, Any]] = self._json("GET", f"/admin/turns?limit={limit}", headers=headers)[
            "data"
        ]
        return turns

    def feedback(self, completion_id: str, **rating: Any) -> str:
        """Sends a rating or text for an answer. Returns the status of the feedback."""
        body = {"completion_id": completion_id, **self._person, **rating}
        return str(self._json("POST", "/v1/feedback", json=body)["status"])

    def end_session(self, session_id: str) -> None:
        """Ends a session on the server."""
        headers = {"X-Session-Id": session_id, "X-Session-Done": "1"}
        self._json("POST", "/v1/chat/completions", headers=headers, json={"messages": [], **self._person})

    def chat(
        self, messages: list[dict[str, str]], session_id: str, train: bool = True, **body: Any
    ) -> Iterator[StreamedAnswer]:
        """Yields the growing answer after each received chunk; it is the same object each time."""
        headers = {"X-Session-Id": session_id} | ({} if train else {"X-Train": "off"})
        request = {"messages": messages, "stream": True, **self._person, **body}
        answer = StreamedAnswer()
        try:
            with self._http.stream("POST", "/v1/chat/completions", headers=headers, json=request) as response:
                if response.status_code != 200:
                    response.read()
                    raise _rejection(response)
                for line in response.iter_lines():
                    if line.startswith("data:") and line[5:].strip() != "[DONE]":
                        _add_chunk(answer, orjson.loads(line[5:]))
                        yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if answer.finish_reason is None:
            raise ChatError("the stream ended before the answer was complete; send the message again")

    def side_answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a complete answer. The request is not stored, judged or trained on."""
        headers = {"X-Train": "off", "X-Turn-Type": "side", "X-Memory": "off"}
        return self._json("POST", "/v1/chat/completions", headers=headers, json=body)

    def admin(self, method: str, path: str, admin_key: str | None, **request: Any) -> dict[str, Any]:
        """Returns the response of an administration route. `admin_key`: required if the server has one."""
        headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        try:
            return self._json(method, path, headers=headers, **request)
        except ChatError as error:
            if error.status == 401:
                raise ChatError(f"{self.url} requires its admin key: set OPENCLAW_ADMIN_KEY", 401) from error
            raise

    def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code != 200:
            raise _rejection(response)
        try:
            content: dict[str, Any] = response.json()
        except ValueError:
            message = f"{self.url}{path} did not return JSON: check that --url is the address of an OpenClaw-RL server"
            raise ChatError(message) from None
        return content

    def _unreachable(self, error: httpx.HTTPError) -> ChatError:
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return ChatError(
            f"cannot reach {self.url} ({cause}): check that the server is running, and pass its address with --url"
        )


def _add_chunk(answer: StreamedAnswer, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        raise ChatError(str(chunk["error"].get("message", chunk["error"])))
    answer.completion_id = chunk.get("id", answer.completion_id)
    for choice in chunk.get("choices", ()):
        delta = choice.get("delta", {})
        answer.text += delta.get("content") or ""
        answer.thinking += delta.get("reasoning_content") or ""
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason


def _rejection(response: httpx.Response) -> ChatError:
    try:
        message = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = response.text[:300] or "no message"
    advice = "; pass the client key with --api-key or SGLANG_API_KEY" if response.status_code == 401 else ""
    return ChatError(
        f"the server rejected the request (HTTP {response.status_code}): {message}{advice}",
        response.status_code,
    )
