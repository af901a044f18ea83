"""A driver records that it has started: its supervisor gives up if it repeatedly fails before."""

from __future__ import annotations

import contextlib
from pathlib import Path

FILE = "driver.started"


def note_started(run_dir: Path) -> None:
    """Called in the driver once the servers are up and the weights are live. Impossible with a full disk."""
    with contextlib.suppress(OSError):
        (run_dir / FILE).touch()


def has_started(run_dir: Path) -> bool:
    """Returns whether the current or last driver has started."""
    return (run_dir / FILE).exists()


def forget_start(run_dir: Path) -> None:
    """Called before the next driver."""
    (run_dir / FILE).unlink(missing_ok=True)
