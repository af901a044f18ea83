"""Lets a driver announce that it saves before it stops, so that its supervisor waits longer."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE = "driver.saving"
DRIVER_GRACE = 5.0  # seconds in which a driver must exit after SIGTERM, or announce that it saves
MORE = 5.0  # seconds after its own limit until a saving driver is killed
ECHO = 1.0
"""Seconds in which repeated signals count as one: sent to a process and its group, passed on by a supervisor, or
typed twice quickly."""


def record_saving(run_dir: Path, limit: float) -> None:
    """Announces, in the driver or its signal handler, that it exits within `limit` seconds (infinite: no limit). With
    a full disk it can neither announce this nor save."""
    with contextlib.suppress(OSError):
        (run_dir / FILE).write_text(f"{os.getpid()} {limit}")


def grace_of(run_dir: Path, pid: int) -> float:
    """Returns the seconds that the driver with this pid has from SIGTERM to its exit."""
    try:
        saver, _, limit = (run_dir / FILE).read_text().partition(" ")
        return float(limit) + MORE if saver == str(pid) else DRIVER_GRACE
    except (FileNotFoundError, ValueError):  # no announcement, or an incomplete one
        return DRIVER_GRACE


def forget_saving(run_dir: Path) -> None:
    (run_dir / FILE).unlink(missing_ok=True)
