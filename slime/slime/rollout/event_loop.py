"""The event loop of this process's rollouts: one thread for all, monitored for blocking functions."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Coroutine
from typing import Any, TypeVar

from slime.errors import ConfigError

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOOK = 1.0  # seconds between checks
SLOW = 10.0  # seconds of blocking after which the function is logged
LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def event_loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop, which runs in a daemon thread."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="rollout-loop", daemon=True)
            _thread.start()
        return _loop


def run(work: Coroutine[Any, Any, T], patience: float = math.inf) -> T:
    """Runs `work` on the loop and returns its result.

    Args:
        patience: seconds for which a function may block the loop.

    Raises:
        ConfigError: the loop was blocked for longer; the message names the function. The loop cannot be used
            any more.
    """
    future = asyncio.run_coroutine_threadsafe(work, event_loop())
    watch = Watch(event_loop(), patience)
    while True:
        try:
            return future.result(LOOK)
        except TimeoutError:
            if future.done():  # it may have finished since the wait ended
                return future.result()
            watch.look()


class Watch:
    """Monitors the loop, and finds the function that blocks it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        self.loop, self.patience = loop, patience
        self.answered = threading.Event()
        self.ask()

    def ask(self) -> None:
        self.asked_at, self.is_logged = time.monotonic(), False
        self.answered.clear()
        self.loop.call_soon_threadsafe(self.answered.set)

    def look(self) -> None:
        """Raises ConfigError after `patience` seconds; logs once after `SLOW`."""
        if self.answered.is_set():
            self.ask()
            return
        still = time.monotonic() - self.asked_at
        if still > self.patience:
            raise ConfigError(
                f"a function has blocked the rollout's event loop for {still:.0f} s "
                f"(--rollout-stall-timeout): {holder()}; async functions must await slow calls, "
                "or use asyncio.to_thread"
            )
        if still > SLOW and not self.is_logged:
            self.is_logged = True
            logger.warning("%s has blocked the event loop of all rollouts for %.0f s", holder(), still)


def holder() -> str:
    """Returns the innermost frame of the loop outside libraries: `file.py:12 (function)`."""
    frame = None if _thread is None else sys._current_frames().get(_thread.ident or 0)
    if frame is None:
        return "something"
    stack = traceback.extract_stack(frame)
    own = [place for place in stack if not place.filename.startswith(LIBRARIES)]
    place = (own or stack)[-1]
    return f"{place.filename}:{place.lineno} ({place.name})"
