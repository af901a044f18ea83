"""Data sources of the views: the store, the run folder with its metrics, a tokenizer, and the gateway if one runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from openclaw.errors import ClientError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.recorder import Recorder
from openclaw.store import RolloutStore

T = TypeVar("T")

TRIES = 2
"""Most repeated prompts at a time, over all pages, so that page users hardly slow down chats."""
READERS = 2
"""Number of threads for the views; they are not used for chats, so that chats never wait for page users."""


MOST_ROWS = 2000
"""Most rows in memory; above this number every second row of the older half is dropped."""
READ_BYTES = 64 << 20

Row = dict[str, float]


class MetricsFile:
    """Reads rows `{"step", "time", NAME: number}` of metrics.jsonl incrementally. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reset()

    def rows(self) -> list[Row]:
        """Returns the rows, oldest first, subsampled if there are too many; [] without a file."""
        with self._lock:
            try:
                self._read()
            except OSError:
                self._reset()
            return list(self._rows)

    def _reset(self) -> None:
        self._rows: list[Row] = []
        self._offset = 0

    def _read(self) -> None:
        if self._path.stat().st_size < self._offset:
            self._reset()
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(READ_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            row = _row(line)
            if row is not None:
                self._rows.append(row)
        while len(self._rows) > MOST_ROWS:
            half = len(self._rows) // 2
            self._rows[:half] = self._rows[:half:2]


def _row(line: bytes) -> Row | None:
    """Returns the numbers of a line; None for an invalid line, such as one cut off by a crash."""
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(row, dict) or "step" not in row:
        return None
    return {name: float(value) for name, value in row.items() if isinstance(value, int | float)}


@dataclass
class ViewSource:
    """The data sources of one server.

    `recorder`: None if turns are not recorded. `run_dir`: None without a run folder. `gateway`, `metrics`: None for a
    run that has ended. `writable`: whether users may change stored data.
    """

    recorder: Recorder | None
    run_dir: Path | None
    tokenizer: Tokenizer | None
    admin_key: str | None
    model_name: str
    gateway: Gateway | None = None
    metrics: CollectorRegistry | None = None
    writable: bool = True
    started: float = field(default_factory=time.time)

    @classmethod
    def of(cls, gateway: Gateway, metrics: CollectorRegistry) -> ViewSource:
        """Returns the data sources of a running gateway."""
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
        self.curves = None if self.run_dir is None else MetricsFile(self.run_dir / "metrics.jsonl")

    @property
    def store(self) -> RolloutStore:
        """Returns the store. Raises ClientError (409) if turns are not recorded."""
        if self.recorder is None:
            raise _not_recording()
        return self.recorder.store

    @property
    def changeable(self) -> Recorder:
        """Returns the recorder, for changes. Raises ClientError (409) if changes are not allowed."""
        if not self.writable:
            message = "this page is read-only: restart it with --allow-changes"
            raise ClientError(message, code="read_only", status=409)
        if self.recorder is None:
            raise _not_recording()
        return self.recorder

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`, which runs in a thread so that the event loop is not blocked."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def source_of(request: Request) -> ViewSource:
    """Returns the data sources of the application that handles this request."""
    source: ViewSource = request.app.state.views
    return source


def _not_recording() -> ClientError:
    message = "this server does not record turns: start it with --enable-rl-intercept"
    return ClientError(message, code="not_recording", status=409)
