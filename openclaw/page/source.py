"""What the page reads from: the store, the run folder, a tokenizer, and the gateway where one runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from starlette.requests import Request

from openclaw.errors import ClientError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.recorder import Recorder
from openclaw.http.metrics import Metrics
from openclaw.page.metrics_file import MetricsFile
from openclaw.page.notices import Notices
from openclaw.store import RolloutStore

T = TypeVar("T")

TRIES = 2
"""Prompts tried again at a time, of all pages together, so that people who look cost people who talk little."""
READERS = 2
"""Threads of the page, apart from those that answer chats: however many look, no answer waits for them."""


@dataclass
class PageSource:
    """recorder: None where nothing is recorded. run_dir: None where no run is watched. gateway, metrics: None for a
    finished run. writable: whether people may change what is stored."""

    recorder: Recorder | None
    run_dir: Path | None
    tokenizer: Tokenizer | None
    admin_key: str | None
    model_name: str
    gateway: Gateway | None = None
    metrics: Metrics | None = None
    writable: bool = True
    started: float = field(default_factory=time.time)

    @classmethod
    def of(cls, gateway: Gateway, metrics: Metrics) -> PageSource:
        """The source of a gateway's own page."""
        settings = gateway.settings
        run_dir = None if settings.run_dir is None else Path(settings.run_dir)
        return cls(
            gateway.recorder,
            run_dir,
            gateway.tokenizer,
            settings.admin_key,
            gateway.model_name,
            gateway,
            metrics,
        )

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="page")
        self.tries = asyncio.Semaphore(TRIES)
        self.notices = Notices()
        self.curves = None if self.run_dir is None else MetricsFile(self.run_dir / "metrics.jsonl")

    @property
    def store(self) -> RolloutStore:
        """Raises ClientError where nothing is recorded."""
        if self.recorder is None:
            raise _not_recording()
        return self.recorder.store

    @property
    def changeable(self) -> Recorder:
        """What changes go through. Raises ClientError where there may be none."""
        if not self.writable:
            message = "this page shows a finished run and changes nothing: start it with --allow-changes"
            raise ClientError(message, code="read_only", status=409)
        if self.recorder is None:
            raise _not_recording()
        return self.recorder

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs reads and rendering beside the event loop, a few at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def source_of(request: Request) -> PageSource:
    """The source of the app that got this request."""
    source: PageSource = request.app.state.page
    return source


def _not_recording() -> ClientError:
    message = "this server records no turns: start it with --enable-rl-intercept"
    return ClientError(message, code="not_recording", status=409)
