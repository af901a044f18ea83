"""Logging: one line per event, `event key=value ...`, and a log file for each process."""

from __future__ import annotations

import logging
import os
from pathlib import Path

FILE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


PROGRESS = logging.getLogger("slime.progress")
"""Lines that the terminal already shows; only for the log file."""


def log_to_file(path: Path) -> None:
    """Also writes this process's logs to a file; `PROGRESS` goes only to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # readable only by the owner, like all logs of a run
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(FILE_FORMAT))
    logging.getLogger().addHandler(handler)
    PROGRESS.addHandler(handler)
    PROGRESS.setLevel(logging.INFO)
    PROGRESS.propagate = False


def event(logger: logging.Logger, what: str, **fields: object) -> None:
    """Logs an event and its values in one line; floats have four significant digits."""
    words = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in fields.items()
    ]
    logger.info(" ".join([what, *words]))
