"""A driver that was asked to stop says that it saves first, so that its supervisor waits longer for it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE = "driver.saving"
DRIVER_GRACE = 5.0  # seconds that a driver has after TERM to end, or to say that it saves
SAVING_GRACE = 120.0  # seconds that it has then
ECHO = 1.0
"""Seconds in which the same signal is taken for one: of a process and of its group, of a supervisor that passes it on, or
of two presses in a hurry."""


def say_saving(run_dir: Path) -> None:
    """In the driver, also in the handler of a signal. On a disk that is full it cannot say so, nor save."""
    with contextlib.suppress(OSError):
        (run_dir / FILE).write_text(str(os.getpid()))


def is_saving(run_dir: Path, pid: int) -> bool:
    """Whether the driver with this pid has said so."""
    try:
        return (run_dir / FILE).read_text() == str(pid)
    except FileNotFoundError:
        return False


def forget_saving(run_dir: Path) -> None:
    (run_dir / FILE).unlink(missing_ok=True)
