"""A gateway in a thread, with access to its parts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import httpx
from openai import OpenAI

from openclaw.formats import tokenizer as openclaw_tokenizer
from openclaw.store import RolloutStore
from tests.fakes.scripted_engine import FakeEngine

KEY = "secret-key"


@dataclass
class RunningGateway:
    """A gateway in a thread, with access to its parts."""

    url: str
    app: Any
    engine: FakeEngine
    model: Path
    buffer: Path
    opened: contextlib.ExitStack
    """Closed after the test."""
    stop: Callable[[], None] = lambda: None
    """Stops it; so does the end of the test."""

    @property
    def tokenizer(self) -> openclaw_tokenizer.Tokenizer:
        tokenizer: openclaw_tokenizer.Tokenizer = self.app.state.gateway.tokenizer
        return tokenizer

    @property
    def client(self) -> OpenAI:
        return self.opened.enter_context(OpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0))

    @property
    def http(self) -> httpx.Client:
        client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=20)
        self.opened.callback(client.close)
        return client

    @cached_property
    def store(self) -> RolloutStore:
        store = RolloutStore(self.buffer)
        self.opened.callback(store.close)
        return store

    def says(self, text: str) -> list[int]:
        """Makes the engine answer with this text; returns the ids."""
        self.engine.say = [*self.tokenizer.encode(text), self.tokenizer.token_id("<|im_end|>")]
        return self.engine.say

    @staticmethod
    def wait_for(condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
        """Polls until the condition is true. Raises AssertionError after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.01)
        raise AssertionError("waited in vain")

    def turn(self, completion_id: str) -> Any:
        return self.store.turns.get_by_completion(completion_id)


class StartGateway(Protocol):
    """Starts a gateway with these settings, connected to the default engine and `engines`."""

    def __call__(self, engines: tuple[FakeEngine, ...] = (), **changes: object) -> RunningGateway: ...
