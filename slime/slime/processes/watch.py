"""Keeps the servers of a run alive: restarts dead ones at once, replaces unresponsive ones, and rotates long logs.

A long log is copied and truncated. Its writers have it open for appending, and continue in the same file. Lines
written between copying and truncating are lost.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from claw_base.files import new_file
from claw_base.run_folder import records
from slime.errors import EngineError
from slime.processes import control
from slime.processes.scaling import FOLLOW_INTERVAL, Scaler
from slime.processes.servers import ServerManager, Watched, is_ready

logger = logging.getLogger(__name__)

LIVENESS_INTERVAL = 0.3  # seconds between checks of the process table
START_INTERVAL = 0.5  # seconds between health checks of a starting server
HEALTH_INTERVAL = 5.0  # seconds between health checks of a ready server
UNHEALTHY_AFTER = 5  # consecutive failed health checks after which a running server is replaced
LONGEST = 32 << 20
"""Bytes of a log; at most this and KEPT copies are on disk."""
KEPT = 3
ROTATE_INTERVAL = 30.0  # seconds between checks of log sizes


class ServerWatch:
    """Threads that watch a manager's servers: one for the process table, one for health, and one for the number of
    servers if there is a scaler."""

    def __init__(self, manager: ServerManager, scaler: Scaler | None = None) -> None:
        self.manager = manager
        self.scaler = scaler
        self.closing = threading.Event()

    def start(self) -> None:
        looks: list[tuple[Callable[[], object], float]] = [
            (self.manager.restart_dead, LIVENESS_INTERVAL),
            (self.ask_for_health, START_INTERVAL),
        ]
        if self.scaler is not None:
            looks.append((self.scaler.follow, FOLLOW_INTERVAL))
        looks.append((lambda: rotate_logs(self.manager.run_dir), ROTATE_INTERVAL))
        for look, interval in looks:
            threading.Thread(target=self.repeat, args=(look, interval), daemon=True).start()

    def repeat(self, look: Callable[[], object], interval: float) -> None:
        while not self.closing.wait(interval):
            try:
                look()
            except EngineError as error:
                logger.error("%s", error)

    def close(self) -> None:
        """Stops watching; the servers continue."""
        self.closing.set()

    def ask_for_health(self) -> None:
        """Checks each server that is due."""
        for watched in list(self.manager.servers.values()):
            if watched.ready and time.monotonic() - watched.asked_at < HEALTH_INTERVAL:
                continue
            watched.asked_at = time.monotonic()
            if watched.record.alive():
                check_health(watched, self.manager.run_dir)


def check_health(watched: Watched, run_dir: Path | None = None) -> None:
    """Sends one health check. Kills a living server that has been unresponsive for long, so that it is replaced.

    With a socket supervisor, the serving worker is killed. If none serves, only the supervisor is killed: its other
    processes hold the port, so no connection is refused until the next supervisor serves.
    """
    if is_ready(watched):
        watched.ready, watched.unhealthy = True, 0
        return
    if not watched.ready and time.monotonic() - watched.since < watched.spec.start_timeout:
        return
    watched.unhealthy += 1
    if watched.unhealthy >= UNHEALTHY_AFTER:
        logger.warning("%s does not answer: it is replaced", watched.spec.name)
        worker = None if run_dir is None else records.serving_record(run_dir, watched.spec.name)
        watched.unhealthy = 0 if worker is not None else watched.unhealthy
        if worker is None and run_dir is not None and records.has_worker(run_dir, watched.spec.name):
            control.send(watched.record, "kill")
            while watched.record.alive():
                time.sleep(0.02)
        else:
            control.terminate(worker or watched.record, grace=1.0)


def rotate_logs(run_dir: Path, longest: int = LONGEST, kept: int = KEPT) -> list[Path]:
    """Copies logs longer than `longest` bytes to NAME.log.1 (.1 becomes .2, and so on) and empties them; returns
    them. A log that cannot be copied is unchanged."""
    rotated = []
    for path in [*sorted((run_dir / "logs").glob("*.log")), run_dir / "driver.out"]:
        try:
            if path.stat().st_size > longest:
                _rotate(path, kept)
                rotated.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:  # a full disk, where logs matter least
            logger.warning("%s was not rotated: %s", path, error)
    return rotated


def _rotate(path: Path, kept: int) -> None:
    for number in range(kept - 1, 0, -1):
        older = _copy_name(path, number)
        if older.exists():
            older.replace(_copy_name(path, number + 1))
    unfinished = path.with_name(path.name + ".part")
    with path.open("rb") as log, open(new_file(unfinished), "wb") as file:
        shutil.copyfileobj(log, file)
    unfinished.replace(_copy_name(path, 1))
    os.truncate(path, 0)


def _copy_name(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
