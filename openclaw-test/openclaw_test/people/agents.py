"""The people's conversation partner: OpenClaw through its gateway, or the served model itself."""

from __future__ import annotations

import time
from typing import Any, Protocol

import httpx

SECONDS = 180.0


class AgentError(RuntimeError):
    """The agent did not answer, even after retries."""


class WrongKey(AgentError):
    """The agent rejects the token or key, so no session can succeed."""


class TooLong(AgentError):
    """The conversation does not fit the model's context."""


class Agent(Protocol):
    """Answers the next message of a session."""

    def say(self, session: str, text: str) -> str: ...

    def end(self, session: str) -> None: ...


class _Http:
    def __init__(self, url: str, token: str, key: str, retries: int, wait: float = 1.0) -> None:
        """`key` is the variable that holds the token."""
        self._key = key
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(
            base_url=url.rstrip("/"), headers=headers, timeout=SECONDS, trust_env=False
        )
        self._retries, self._wait = retries, wait

    def send(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        """Sends one request and returns the response, whatever its status."""
        return self._client.post("/v1/chat/completions", json=body, headers=headers)

    def get(self, path: str) -> dict[str, Any]:
        """Returns a JSON object; {} if the server does not return one."""
        try:
            content = self._client.get(path).json()
        except (httpx.HTTPError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def ask(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> str:
        """Returns the answer's text. Raises AgentError as `message`."""
        return str(self.message(body, headers)["content"] or "")

    def message(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Returns the assistant's message; retries after 1, 2, 4, ... seconds if the server is unreachable or fails.
        Raises AgentError."""
        for attempt in range(self._retries + 1):
            try:
                response = self.send(body, headers)
                if response.status_code < 500:
                    break
                problem = f"HTTP {response.status_code}: {response.text[:200]}"
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            if attempt < self._retries:
                time.sleep(self._wait * 2**attempt)
        else:
            raise AgentError(f"{self._client.base_url} did not answer: {problem}")
        if response.status_code in (401, 403):
            raise WrongKey(
                f"{self._client.base_url} does not accept the {self._key} (HTTP {response.status_code}: "
                f"{response.text[:200].strip()})"
            )
        if response.status_code != 200:
            kind = TooLong if "context_length_exceeded" in response.text else AgentError
            raise kind(
                f"{self._client.base_url} refused (HTTP {response.status_code}): {response.text[:300]}"
            )
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message


class OpenClawAgent:
    """OpenClaw's gateway keeps the conversation; `user` names the session, and only the new message is sent."""

    def __init__(self, url: str, token: str, retries: int, model: str = "openclaw/default") -> None:
        self._http, self._model = _Http(url, token, "OPENCLAW_GATEWAY_TOKEN", retries), model

    def say(self, session: str, text: str) -> str:
        body = {
            "model": self._model,
            "stream": False,
            "user": session,
            "messages": [{"role": "user", "content": text}],
        }
        return self._http.ask(body)

    def end(self, session: str) -> None:
        """Does nothing: OpenClaw ends its sessions itself."""


class ServedModel:
    """The served model without an agent around it: the whole conversation is sent, and the session is ended."""

    def __init__(self, url: str, key: str, retries: int) -> None:
        self._http = _Http(url.rstrip("/").removesuffix("/v1"), key, "SGLANG_API_KEY", retries)
        self._talks: dict[str, list[dict[str, str]]] = {}

    def say(self, session: str, text: str) -> str:
        talk = [*self._talks.get(session, []), {"role": "user", "content": text}]
        answer = self._http.ask({"messages": talk}, {"X-Session-Id": session})
        self._talks[session] = [*talk, {"role": "assistant", "content": answer}]
        return answer

    def end(self, session: str) -> None:
        self._talks.pop(session, None)
        response = self._http.send({"messages": []}, {"X-Session-Id": session, "X-Session-Done": "1"})
        if response.status_code != 200:
            raise AgentError(f"the session {session} was not ended: HTTP {response.status_code}")


class ToolModel:
    """The served model with tools: the caller keeps the conversation. `train`: whether turns are stored."""

    def __init__(self, url: str, key: str, retries: int, max_tokens: int, train: bool = True) -> None:
        self._http = _Http(url.rstrip("/").removesuffix("/v1"), key, "SGLANG_API_KEY", retries)
        self._max_tokens, self._train = max_tokens, train

    def reply(
        self, session: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
    ) -> dict[str, Any]:
        """Returns the model's message. Raises AgentError, TooLong."""
        body = {"messages": messages, "max_tokens": self._max_tokens, **({"tools": tools} if tools else {})}
        headers = {"X-Session-Id": session} | ({} if self._train else {"X-Train": "off"})
        message = self._http.message(body, headers)
        calls = message.get("tool_calls")
        return {
            "role": "assistant",
            "content": message.get("content"),
            **({"tool_calls": calls} if calls else {}),
        }

    def takes(self, tools: list[dict[str, Any]]) -> bool:
        """Returns whether the server accepts a request with these tools. The request is not stored."""
        body = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1, "tools": tools}
        return self._http.send(body, {"X-Train": "off", "X-Turn-Type": "side"}).status_code == 200

    def version(self) -> str | None:
        """Returns the live weight version; None if the server does not report one."""
        version = self._http.get("/status").get("weight_version")
        return None if version is None else str(version)

    def end(self, session: str) -> None:
        """Ends the session at the server."""
        if self._train:
            headers = {"X-Session-Id": session, "X-Session-Done": "1"}
            response = self._http.send({"messages": []}, headers)
            if response.status_code != 200:
                raise AgentError(f"the session {session} was not ended: HTTP {response.status_code}")
