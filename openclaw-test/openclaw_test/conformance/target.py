"""Requests that all clients send, and the expected answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Check = Callable[[], None]
QUESTION = "Hello! How are you?"
MAX_TOKENS = 64
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
FUNCTION: dict[str, Any] = {"name": "get_weather", "description": "Weather now", "parameters": PARAMETERS}
TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
WRONG_KEY = "no-such-key"
NO_MODEL = "no-such-model"


@dataclass(frozen=True)
class Target:
    """The server under test. `key` is empty if it requires none."""

    url: str
    key: str
    model: str

    @property
    def base(self) -> str:
        return f"{self.url}/v1"

    @property
    def sent_key(self) -> str:
        """Returns a non-empty key, which clients require even if the server does not."""
        return self.key or "none"


class NotInstalledError(Exception):
    """A client is not installed; the message explains how to install it."""


def expect(condition: object, what: str) -> None:
    """Raises AssertionError with `what` unless the condition holds."""
    if not condition:
        raise AssertionError(what)


def expect_model(name: str, target: Target) -> None:
    """Expects that the served model answers to any model name, with its own name. Raises AssertionError."""
    expect(name == target.model, f"answered by {name!r}, not {target.model!r}")


def expect_call(name: str | None, arguments: str, whole: bool) -> None:
    """Expects the right tool name, and arguments that are valid JSON if and only if the call is complete. name None:
    the model wrote no call."""
    if name is None:
        expect(not whole, "a call is announced that was not sent")
        return
    expect(name == FUNCTION["name"], f"the call is to {name!r}")
    try:
        json.loads(arguments)
    except ValueError:
        expect(not whole, f"a whole call with broken arguments: {arguments!r}")
    else:
        expect(whole, "a call cut by length looks whole")
