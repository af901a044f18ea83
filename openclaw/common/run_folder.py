"""Which processes of a run are alive, read from the run folder: `processes/<name>.json`.

Whoever starts a process writes its record; here they are only read. A record counts as alive when a process
with its pid and its creation time exists, so that a pid used again by another program is never mistaken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import psutil

CREATE_TIME_TOLERANCE_SECONDS = 1.0


def live_processes(run_dir: Path) -> list[dict[str, Any]]:
    """Records of the run's processes that are alive, by name. An unreadable record is not alive.

    Returns:
        `[{"name", "role", "pid", "create_time", "url", ...}]`; empty when there is no run folder yet.
    """
    records = [_record(path) for path in sorted((run_dir / "processes").glob("*.json"))]
    return [record for record in records if record is not None and is_alive(record)]


def dead_roles(run_dir: Path) -> list[str]:
    """Roles that the run has records of, and no process that is alive."""
    records = [_record(path) for path in sorted((run_dir / "processes").glob("*.json"))]
    known = [record for record in records if record is not None and "role" in record]
    alive = {str(record["role"]) for record in known if is_alive(record)}
    return sorted({str(record["role"]) for record in known} - alive)


def is_alive(record: dict[str, Any]) -> bool:
    """Whether the very process of this record still runs (a zombie does not)."""
    try:
        process = psutil.Process(int(record["pid"]))
        same = abs(process.create_time() - float(record["create_time"])) <= CREATE_TIME_TOLERANCE_SECONDS
        return same and bool(process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def _record(path: Path) -> dict[str, Any] | None:
    try:
        record = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):  # being written, or removed, right now
        return None
    return record if isinstance(record, dict) else None
