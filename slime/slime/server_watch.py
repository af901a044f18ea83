"""Keeps the servers of a run alive: restarts the dead at once and replaces those that no longer answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from slime import processes
from slime.errors import EngineError
from slime.servers import ServerManager, Watched, healthy

logger = logging.getLogger(__name__)

LIVENESS_INTERVAL = 0.3  # seconds between looks at the process table
HEALTH_INTERVAL = 5.0  # seconds between health requests
UNHEALTHY_AFTER = 5  # failed health requests in a row before a running server is replaced
STEADY_SECONDS = 60.0  # a server that ran this long starts again without delay
LONGEST_BACKOFF = 10.0  # seconds


def restart_delay(quick_deaths: int) -> float:
    """Seconds before the next start: none for the first death, then 0.5, 1, 2, ... `LONGEST_BACKOFF`."""
    return 0.0 if quick_deaths == 0 else min(LONGEST_BACKOFF, 0.5 * 2.0 ** (quick_deaths - 1))


class ServerWatch:
    """Two threads over the servers of a manager: one looks at the process table, one asks for health."""

    def __init__(self, manager: ServerManager) -> None:
        self.manager = manager
        self.restarts: dict[str, int] = {}
        self.closing = threading.Event()

    def start(self) -> None:
        for look, interval in (
            (self.restart_dead, LIVENESS_INTERVAL),
            (self.replace_unhealthy, HEALTH_INTERVAL),
        ):
            threading.Thread(target=self.repeat, args=(look, interval), daemon=True).start()

    def repeat(self, look: Callable[[], None], interval: float) -> None:
        while not self.closing.wait(interval):
            look()

    def close(self) -> None:
        """Stops watching; the servers go on."""
        self.closing.set()

    def restart_dead(self) -> None:
        """One look at the process table. A dead server starts at once, one that keeps dying after a delay."""
        for name, watched in list(self.manager.servers.items()):
            with self.manager.lock:
                if self.closing.is_set() or name not in self.manager.servers or watched.record.alive():
                    continue
                if watched.restart_at is None:
                    note_death(watched)
                if watched.restart_at is not None and time.time() >= watched.restart_at:
                    self.restart(watched)

    def restart(self, watched: Watched) -> None:
        name = watched.spec.name
        watched.ready, watched.unhealthy, watched.restart_at = False, 0, None
        self.restarts[name] = self.restarts.get(name, 0) + 1
        try:
            watched.record = self.manager.launch(watched.spec)
        except EngineError as error:
            logger.error("%s", error)

    def replace_unhealthy(self) -> None:
        """One health request to each server. One that lives but does not answer for long is killed."""
        for watched in list(self.manager.servers.values()):
            if not watched.record.alive():
                continue
            if healthy(watched.spec):
                watched.ready, watched.unhealthy = True, 0
                continue
            if not watched.ready and time.time() - watched.record.started_at < watched.spec.start_timeout:
                continue
            watched.unhealthy += 1
            if watched.unhealthy >= UNHEALTHY_AFTER:
                logger.warning("%s does not answer: it is replaced", watched.spec.name)
                processes.terminate(watched.record, grace=1.0)


def note_death(watched: Watched) -> None:
    """Decides when the server starts again."""
    now = time.time()
    if now - watched.record.started_at > STEADY_SECONDS:
        watched.quick_deaths = 0
    watched.restart_at = now + restart_delay(watched.quick_deaths)
    watched.quick_deaths += 1
    logger.warning("%s (pid %d) is gone", watched.spec.name, watched.record.pid)
