"""What all clients ask of the server, and what they expect."""

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
    """The server under test. `key` is empty if it wants none."""

    url: str
    key: str
    model: str

    @property
    def base(self) -> str:
        return f"{self.url}/v1"

    @property
    def sent_key(self) -> str:
        """Clients want some key, whether the server does or not."""
        return self.key or "none"


class NotInstalledError(Exception):
    """A client is not there; the message says how to get it."""


def expect(condition: object, what: str) -> None:
    """Raises AssertionError."""
    if not condition:
        raise AssertionError(what)


def expect_model(name: str, target: Target) -> None:
    """The one model that is served answers to any name, under its own. Raises AssertionError."""
    expect(name == target.model, f"answered by {name!r}, not {target.model!r}")


def expect_call(name: str | None, arguments: str, whole: bool) -> None:
    """A call that was asked for: named right; its arguments are JSON if and only if it is whole. None for a
    model that wrote none, sound or not."""
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
