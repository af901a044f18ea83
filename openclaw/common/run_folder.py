"""Which processes of a run are alive, read from the run folder: `processes/<name>.json`.

Whoever starts a process writes its record. A record counts as alive when a process with its pid and its birth exists, so
that a pid used again by another program is never mistaken, and none is forgotten when somebody sets the clock.
Where a server is a door with workers behind it (see `door/`), `<name>.serving` is the one that serves, `<name>.spare` the
one that waits, and `<name>` the door.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import psutil

CREATE_TIME_TOLERANCE_SECONDS = 1.0
SERVING = ".serving"
DOOR = "door"


def live_processes(run_dir: Path) -> list[dict[str, Any]]:
    """Records of the run's processes that are alive, by name. An unreadable record is not alive.

    Returns:
        `[{"name", "role", "pid", "create_time", "url", ...}]`; empty when there is no run folder yet.
    """
    records = [_record(path) for path in sorted((run_dir / "processes").glob("[!.]*.json"))]
    alive = [record for record in records if record is not None and is_alive(record)]
    doors = {str(record.get("name", "")).removesuffix(SERVING) for record in alive if _serves(record)}
    return [record | {"role": DOOR} if record.get("name") in doors else record for record in alive]


def recorded_pid(run_dir: Path, name: str) -> int | None:
    """The pid in a record, whether it is alive or not; None if there is no record."""
    record = _record(_path(run_dir, name))
    return None if record is None else record.get("pid")


def note_part(run_dir: Path, name: str, part: str, role: str, pid: int | None) -> None:
    """Records which worker of the server `name` plays a part (serving, spare); pid None: nobody does."""
    path = _path(run_dir, f"{name}.{part}")
    try:
        created = None if pid is None else psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        created = None
    if created is None:
        path.unlink(missing_ok=True)
        return
    door = _record(_path(run_dir, name)) or {}
    record = {"name": f"{name}.{part}", "role": role, "pid": pid, "create_time": created, "url": None}
    record |= {"command": door.get("command", []), "started_at": time.time(), "birth": _birth_of(pid)}
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
    beside.replace(path)


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
        if birth := record.get("birth"):
            same = birth == _birth_of(process.pid)
        else:
            same = abs(process.create_time() - float(record["create_time"])) <= CREATE_TIME_TOLERANCE_SECONDS
        return same and bool(process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def _birth_of(pid: int | None) -> str:
    """The machine's boot and the clock ticks from it to the start of a process; nobody sets that clock. "": no such
    process, or no Linux. The trainer's records have the same."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{ticks}"
    except (OSError, IndexError):
        return ""


def _serves(record: dict[str, Any]) -> bool:
    return str(record.get("name", "")).endswith(SERVING)


def _path(run_dir: Path, name: str) -> Path:
    return run_dir / "processes" / f"{name}.json"


def _record(path: Path) -> dict[str, Any] | None:
    try:
        record = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):  # being written, or removed, right now
        return None
    return record if isinstance(record, dict) else None
