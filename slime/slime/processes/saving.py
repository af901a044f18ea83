"""A driver that was asked to stop notes that it saves first, so that its supervisor waits longer for it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE = "driver.saving"
DRIVER_GRACE = 5.0  # seconds that a driver has after TERM to end, or to announce that it saves
MORE = 5.0  # seconds behind its own limit, after which a driver that saves is killed
ECHO = 1.0
"""Seconds in which the same signal is taken for one: of a process and of its group, of a supervisor that passes it on, or
of two presses in a hurry."""


def say_saving(run_dir: Path, limit: float) -> None:
    """Announces, in the driver or its signal handler, that it ends by itself within `limit` seconds (infinite: at any
    time). On a full disk it can neither announce this nor save."""
    with contextlib.suppress(OSError):
        (run_dir / FILE).write_text(f"{os.getpid()} {limit}")


def grace_of(run_dir: Path, pid: int) -> float:
    """Seconds that the driver with this pid has from TERM to its end."""
    try:
        saver, _, limit = (run_dir / FILE).read_text().partition(" ")
        return float(limit) + MORE if saver == str(pid) else DRIVER_GRACE
    except (FileNotFoundError, ValueError):  # no note, or an unfinished one
        return DRIVER_GRACE


def forget_saving(run_dir: Path) -> None:
    (run_dir / FILE).unlink(missing_ok=True)
