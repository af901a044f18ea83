"""Records of a run's processes, one in each `RUN_DIR/processes/NAME.json`.

The program that starts a process writes its record. A record counts as alive only while a process with its pid *and*
its start time (`birth`) exists: a reused pid is never mistaken for ours, and setting the clock has no effect. For a
server with a socket supervisor (see `hotswap/`), `NAME.serving` is the serving worker, `NAME.spare` the waiting one,
`NAME.keeper` the process that holds the socket, and `NAME` the socket supervisor.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from claw_base.files import write_json

CREATE_TIME_TOLERANCE_SECONDS = 1.0
"""Tolerance for small corrections of the clock that creation times are based on."""
SERVING = "serving"
SUPERVISOR_ROLE = "door"
"""The role of a socket supervisor in `/status`; clients rely on this word."""
PARTS = (SERVING, "spare", "keeper")
"""The workers of a server with a socket supervisor; each has a record `NAME.PART`."""


@dataclass(frozen=True)
class ProcessRecord:
    """A process of a run. `create_time` and `started_at` are seconds since the epoch; `birth` is the result of
    `birth_of`, "" if only creation times are known."""

    name: str
    role: str
    pid: int
    create_time: float
    url: str | None
    command: list[str]
    started_at: float
    birth: str = ""

    def alive(self) -> bool:
        """Returns whether exactly this process still runs; a zombie does not count."""
        try:
            process = psutil.Process(self.pid)
            if self.birth:
                return birth_of(self.pid) == self.birth and not has_ended(process)
            drift = abs(process.create_time() - self.create_time)
            return drift <= CREATE_TIME_TOLERANCE_SECONDS and not has_ended(process)
        except (psutil.Error, ValueError):
            return False


def birth_of(pid: int) -> str:
    """Returns the boot id and the start time of a process in clock ticks since boot: constant for its lifetime,
    unlike psutil's creation time, which changes when the clock is set. "": no such process, or not Linux."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{_boot()}/{ticks}"
    except (OSError, IndexError):
        return ""


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def has_ended(process: psutil.Process) -> bool:
    """Returns whether exactly this process has exited; a zombie counts as exited."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def record_path(run_dir: Path, name: str) -> Path:
    return run_dir / "processes" / f"{name}.json"


def part_name(name: str, part: str) -> str:
    return f"{name}.{part}"


def is_worker(record: ProcessRecord) -> bool:
    """Returns whether the process is a worker that a socket supervisor starts and replaces."""
    return record.name.endswith(tuple(f".{part}" for part in PARTS))


def read_record(run_dir: Path, name: str) -> ProcessRecord | None:
    """Returns the record of one process; None if it is missing, unreadable, or contains a name other than its file's."""
    try:
        content = json.loads(record_path(run_dir, name).read_bytes())
        record = ProcessRecord(
            **{item.name: content[item.name] for item in fields(ProcessRecord) if item.name in content}
        )
        numbers = isinstance(record.pid, int) and isinstance(record.create_time, int | float)
        return record if record.name == name and numbers else None
    except (OSError, ValueError, TypeError):  # being written or removed just now
        return None


def read_records(run_dir: Path) -> list[ProcessRecord]:
    """Returns all records of a run folder, including dead processes, sorted by name."""
    names = sorted(path.stem for path in (run_dir / "processes").glob("[!.]*.json"))
    return [record for name in names if (record := read_record(run_dir, name)) is not None]


def serving_record(run_dir: Path, name: str) -> ProcessRecord | None:
    """Returns the record of the worker that serves for the server `name`; None if none serves or the server has no
    supervisor."""
    record = read_record(run_dir, part_name(name, SERVING))
    return record if record is not None and record.alive() else None


def has_worker(run_dir: Path, name: str) -> bool:
    """Returns whether a worker of the server `name` is alive and thus holds its port. The socket supervisor may be
    dead."""
    records = [read_record(run_dir, part_name(name, part)) for part in PARTS]
    return any(record is not None and record.alive() for record in records)


def engines_file(run_dir: Path) -> Path:
    """Returns the path of the file with the policy's engines on other machines: {"engine-4":
    "http://10.0.0.2:21000"}."""
    return run_dir / "engines_elsewhere.json"


def engine_urls(run_dir: Path) -> list[str]:
    """Returns the addresses of the policy's engines started by the run, on all machines."""
    own = [record.url for record in read_records(run_dir) if record.role == "engine" and record.url]
    try:
        elsewhere = json.loads(engines_file(run_dir).read_bytes())
    except (OSError, ValueError):  # missing, or being written
        return own
    return [*own, *elsewhere.values()]


def live_processes(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the records of the run's living processes, by name; a socket supervisor has the role `door`.

    Returns:
        `[{"name", "role", "pid", "create_time", "url", ...}]`; empty if there is no run folder yet.
    """
    alive = [record for record in read_records(run_dir) if record.alive()]
    suffix = part_name("", SERVING)
    supervised = {record.name.removesuffix(suffix) for record in alive if record.name.endswith(suffix)}
    role = {"role": SUPERVISOR_ROLE}
    return [asdict(record) | (role if record.name in supervised else {}) for record in alive]


def dead_roles(run_dir: Path) -> list[str]:
    """Returns the roles that have records but no living process."""
    records = read_records(run_dir)
    return sorted({record.role for record in records} - {record.role for record in records if record.alive()})


def record_self(run_dir: Path, name: str, role: str, command: Sequence[str] = ()) -> ProcessRecord:
    """Writes and returns the record of the calling process."""
    record = describe(os.getpid(), name, role, None, list(command or sys.argv))
    write_record(run_dir, record)
    return record


def describe(pid: int, name: str, role: str, url: str | None, command: list[str]) -> ProcessRecord:
    """Returns the record of a running process. Raises psutil.NoSuchProcess."""
    created = psutil.Process(pid).create_time()
    return ProcessRecord(name, role, pid, created, url, command, time.time(), birth_of(pid))


def record_part(run_dir: Path, name: str, part: str, supervisor: int, pid: int | None) -> None:
    """Records which worker of the server `name` has a role (one of `PARTS`); pid None: no process has it.

    Args:
        supervisor: pid of the socket supervisor that calls, or that started the calling worker. A supervisor that is not
            the recorded one changes nothing; a worker that serves without its supervisor may.
    """
    own = read_record(run_dir, name)
    if own is None or (own.pid != supervisor and os.getpid() == supervisor):
        return
    worker, role = part_name(name, part), own.role if part == SERVING else part
    try:
        record = None if pid is None else describe(pid, worker, role, None, own.command)
    except psutil.NoSuchProcess:
        record = None
    if record is None:
        forget(run_dir, worker)
    else:
        write_record(run_dir, record)


def write_record(run_dir: Path, record: ProcessRecord) -> None:
    write_json(record_path(run_dir, record.name), asdict(record))


def forget(run_dir: Path, name: str) -> None:
    record_path(run_dir, name).unlink(missing_ok=True)
