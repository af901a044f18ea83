"""Keeps the servers of a run alive: restarts the dead at once, replaces those that no longer answer, and rotates long
logs.

A long log is copied aside and emptied. The processes that write have it open for appending, and go on in the same file.
Lines written between copy and emptying are lost.
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

LIVENESS_INTERVAL = 0.3  # seconds between looks at the process table
START_INTERVAL = 0.5  # seconds between health requests to a server that starts
HEALTH_INTERVAL = 5.0  # seconds between health requests to a server that is ready
UNHEALTHY_AFTER = 5  # failed health requests in a row before a running server is replaced
LONGEST = 32 << 20
"""Bytes of a log; at most this and KEPT copies of it are on disk."""
KEPT = 3
ROTATE_INTERVAL = 30.0  # seconds between looks at the sizes of logs


class ServerWatch:
    """Threads over the servers of a manager: one looks at the process table, one asks for health, and one changes
    their number where a scaler is given."""

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
        """Stops watching; the servers go on."""
        self.closing.set()

    def ask_for_health(self) -> None:
        """Asks each server whose turn it is."""
        for watched in list(self.manager.servers.values()):
            if watched.ready and time.monotonic() - watched.asked_at < HEALTH_INTERVAL:
                continue
            watched.asked_at = time.monotonic()
            if watched.record.alive():
                check_health(watched, self.manager.run_dir)


def check_health(watched: Watched, run_dir: Path | None = None) -> None:
    """Sends one health request. Kills a server that lives but has not answered for long, so that it is replaced.

    With a socket supervisor, the serving worker is killed. If none serves, the supervisor alone is killed: its other
    processes hold the port, so no connection is refused until the next supervisor serves."""
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
    """Copies logs longer than `longest` bytes to NAME.log.1 (.1 becomes .2, and so on) and empties them; returns them.
    A log that cannot be copied stays as it is."""
    rotated = []
    for path in [*sorted((run_dir / "logs").glob("*.log")), run_dir / "driver.out"]:
        try:
            if path.stat().st_size > longest:
                _rotate(path, kept)
                rotated.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:  # a full disk: then the log is what matters least
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
