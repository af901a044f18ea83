"""Logs of a run do not grow for ever: a long one is copied aside and emptied.

The processes that write have their log open, for appending, and go on in the same file. What they write in the moment
between copy and emptying is lost.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger(__name__)

LONGEST = 32 << 20
"""Bytes of a log; at most this and KEPT copies of it are on disk."""
KEPT = 3
ROTATE_INTERVAL = 30.0  # seconds between looks at their sizes


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
    shutil.copy2(path, unfinished)
    unfinished.replace(_copy_name(path, 1))
    os.truncate(path, 0)


def _copy_name(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
