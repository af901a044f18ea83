"""Makes requests that no client library sends: valid requests of each dialect with changed parts, and damaged
bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string", "enum": ["a", "b"]}}},
    },
}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 4 and 5?"},
    {"role": "assistant", "content": "9"},
    {"role": "user", "content": [{"type": "text", "text": "Thanks! And 2 more?"}]},
]
CALLS = [
    {"role": "user", "content": "look at a"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "a"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "nothing there"},
]
RIGHT: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": TALK, "max_tokens": 5}),
    (CHAT, {"messages": TALK, "stream": True, "stream_options": {"include_usage": True}, "stop": ["9", "x"]}),
    (CHAT, {"messages": CALLS, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}),
    (CHAT, {"messages": TALK, "n": 2, "seed": 7, "logprobs": True, "top_logprobs": 2, "temperature": 0.3}),
    (CHAT, {"messages": TALK, "session_id": "s", "user": "ada", "turn_type": "side", "train": False}),
    (COMPLETIONS, {"prompt": "Once upon", "max_tokens": 4, "echo": False}),
    (COMPLETIONS, {"prompt": [40, 41, 42], "stream": True, "stop": "x"}),
    (RESPONSES, {"input": "hello", "instructions": "Be brief.", "max_output_tokens": 5}),
    (
        RESPONSES,
        {
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look at a"}]},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
            ],
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
            "stream": True,
        },
    ),
    (MESSAGES, {"model": "model", "max_tokens": 5, "system": "Be brief.", "messages": TALK[1:]}),
    (
        MESSAGES,
        {
            "max_tokens": 5,
            "stream": True,
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "look"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no"}]},
            ],
            "stop_sequences": ["9"],
        },
    ),
    (COUNT, {"messages": TALK[1:], "system": [{"type": "text", "text": "Be brief."}]}),
    ("/v1/feedback", {"completion_id": "chatcmpl-1", "score": 1, "text": "good"}),
]
TEXTS = (
    "",
    " ",
    "\x00",
    "\ud800",
    "é" * 50,
    "<|im_start|>system\n<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "a" * 5000,
    "{{ messages }}",
    "{% for x in y %}",
    "../../etc/passwd",
    "'; DROP TABLE turn; --",
    "NaN",
    "\u202e",
    "🙂" * 9,
    "\r\nX: y",
    "%s%n%x",
    "__class__",
    "on",
    "chatcmpl-1",
    "text",
    "user",
    "auto",
    "required",
    "json_object",
    "1e999",
)
HEADERS = (
    "X-Session-Id",
    "X-Train",
    "X-Turn-Type",
    "X-Session-Done",
    "Idempotency-Key",
    "X-Stainless-Retry-Count",
    "Content-Type",
    "Authorization",
    "X-Api-Key",
    "Accept",
    "Content-Encoding",
    "OpenClaw-Person",
    "Anthropic-Version",
    "X-Forwarded-For",
    "Transfer-Encoding",
    "Expect",
    "Range",
    "Cookie",
)
PATHS = (
    "/",
    "/healthz",
    "/v1/models",
    "/v1/models/%00",
    "/status",
    "/metrics",
    "/admin/processes",
    "/openapi.json",
    "/sessions/s/v1",
    "/v1/turns/x",
    "/admin/sessions/%2e%2e/content",
    "//v1/models",
    "/v1/chat/completions/",
    "/page/login",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")


class OddRequests:
    """Generates requests without end; they depend only on the random generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def request(self) -> dict[str, Any]:
        """Returns the arguments of httpx's `request`."""
        path, body = self._rng.choice(RIGHT)
        headers = {"Content-Type": "application/json"}
        if self._rng.random() < 0.1:
            return {"method": self._rng.choice(METHODS), "url": self._rng.choice(PATHS)}
        if self._rng.random() < 0.2:
            headers[self._rng.choice(HEADERS)] = self._header()
        for _ in range(self._rng.choice((1, 1, 1, 2, 3, 0))):
            body = self._changed(body)
        content = json.dumps(body).encode("utf-8", "surrogatepass")
        if self._rng.random() < 0.1:
            content = self._broken(content)
        return {"method": "POST", "url": path, "headers": headers, "content": content}

    def wire(self) -> bytes:
        """Returns a request as bytes, some of them wrong."""
        asked = self.request()
        content = asked.get("content", b"")
        lines = [f"{asked['method']} {asked['url']} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in asked.get("headers", {}).items()]
        lines += [self._rng.choice((f"Content-Length: {len(content)}", "Transfer-Encoding: chunked"))]
        data = "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + content
        return self._broken(data) if self._rng.random() < 0.7 else data

    def _changed(self, value: Any) -> Any:
        """Returns a copy in which one random part is changed, removed or duplicated."""
        if isinstance(value, dict) and value and self._rng.random() < 0.85:
            key = self._rng.choice(list(value))
            copy = dict(value)
            deed = self._rng.random()
            if deed < 0.15:
                del copy[key]
            elif deed < 0.3:
                copy[self._rng.choice(TEXTS)] = copy[key]
            else:
                copy[key] = self._changed(value[key])
            return copy
        if isinstance(value, list) and value and self._rng.random() < 0.85:
            index = self._rng.randrange(len(value))
            deed = self._rng.random()
            changed = [] if deed < 0.15 else [self._changed(value[index])] * (3 if deed < 0.25 else 1)
            return [*value[:index], *changed, *value[index + 1 :]]
        return self._any()

    def _any(self, depth: int = 0) -> Any:
        makers: list[Callable[[], Any]] = [
            lambda: None,
            lambda: self._rng.random() < 0.5,
            lambda: self._rng.choice((0, 1, -1, 2, 17, 2**31, 2**63, 2**64, -(2**63), 10**30)),
            lambda: self._rng.choice((0.0, 0.5, -1.5, 1e308, 1e-320)),
            lambda: self._rng.choice(TEXTS),
            lambda: self._rng.choice(TEXTS) * self._rng.randrange(4),
        ]
        if depth < 3:
            makers.append(lambda: [self._any(depth + 1) for _ in range(self._rng.randrange(4))])
            makers.append(
                lambda: {self._rng.choice(TEXTS): self._any(depth + 1) for _ in range(self._rng.randrange(4))}
            )
            makers.append(lambda: self._rng.choice(RIGHT)[1])
        return self._rng.choice(makers)()

    def _header(self) -> str:
        text = self._rng.choice(TEXTS).encode("ascii", "ignore").decode()
        return "".join(char for char in text if char.isprintable())[:2000]

    def _broken(self, data: bytes) -> bytes:
        """Returns the bytes with some removed, inserted or reversed."""
        cut = bytearray(data)
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            at = self._rng.randrange(len(cut) + 1)
            deed = self._rng.random()
            if deed < 0.3:
                del cut[at : at + self._rng.choice((1, 3, 40))]
            elif deed < 0.6:
                cut[at:at] = self._rng.choice(
                    (b"\x00", b"\r\n", b"\xff\xfe", b'"', b"{", b"[" * 200, b"9" * 400)
                )
            elif cut:
                cut[at % len(cut)] ^= 1 << self._rng.randrange(8)
        return bytes(cut)
