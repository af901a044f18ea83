"""The event loop of this process's rollouts: one thread that outlives each rollout."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop, running in a daemon thread."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="rollout-loop", daemon=True).start()
        return _loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` on the loop and waits for it; what it raises is raised here."""
    return asyncio.run_coroutine_threadsafe(work, event_loop()).result()
