"""A driver notes that it has started: its supervisor gives up one that fails again and again before it has."""

from __future__ import annotations

import contextlib
from pathlib import Path

FILE = "driver.started"


def note_started(run_dir: Path) -> None:
    """In the driver, once the servers are up and the weights are live. On a full disk it cannot."""
    with contextlib.suppress(OSError):
        (run_dir / FILE).touch()


def has_started(run_dir: Path) -> bool:
    """Returns whether the present or last driver got so far."""
    return (run_dir / FILE).exists()


def forget_start(run_dir: Path) -> None:
    """Before the next driver."""
    (run_dir / FILE).unlink(missing_ok=True)
