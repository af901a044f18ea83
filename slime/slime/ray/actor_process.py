"""What every actor does first in its process: own log file, own record, own niceness."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from slime.processes import records

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def enter(run_dir: Path, name: str, role: str | None = None, nice: int = 0) -> None:
    """Sets up the calling actor process.

    Args:
        run_dir: run folder; output goes to `logs/NAME.log` in it.
        name: of the log, and of the record if there is a `role`.
        role: what /admin/processes shows; None leaves no record.
        nice: how far this process stands back behind the servers.
    """
    path = records.log_path(run_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if nice:
        os.nice(nice)
    if role is not None:
        records.record_self(run_dir, name, role)
