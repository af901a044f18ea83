"""Records of a run's processes, one in each `RUN_DIR/processes/NAME.json`.

The program that starts a process writes its record. A record counts as alive only while a process with its pid *and*
its birth exists: a pid that the system gave to another program is never mistaken for ours, and setting the clock
hides no process. For a server with a socket supervisor (see `hotswap/`), `NAME.serving` is the worker that serves,
`NAME.spare` the one that waits, `NAME.keeper` the process that holds the socket, and `NAME` the socket supervisor.
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
"""The clock that creation times are counted from may be corrected a little."""
SERVING = "serving"
SUPERVISOR_ROLE = "door"
"""The role of a socket supervisor in `/status`: clients read this word."""
PARTS = (SERVING, "spare", "keeper")
"""The workers of a server with a socket supervisor; each has a record `NAME.PART`."""


@dataclass(frozen=True)
class ProcessRecord:
    """A process of a run. `create_time` and `started_at` are seconds since the epoch; `birth` as `birth_of` returns it,
    "" where only creation times are known."""

    name: str
    role: str
    pid: int
    create_time: float
    url: str | None
    command: list[str]
    started_at: float
    birth: str = ""

    def alive(self) -> bool:
        """True while this very process runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            if self.birth:
                return birth_of(self.pid) == self.birth and not has_ended(process)
            drift = abs(process.create_time() - self.create_time)
            return drift <= CREATE_TIME_TOLERANCE_SECONDS and not has_ended(process)
        except (psutil.Error, ValueError):
            return False


def birth_of(pid: int) -> str:
    """Returns the machine's boot and the clock ticks from it to the start of a process: the same for its whole life,
    also when the clock is set, which moves what psutil reports as creation time. "": no such process, or no Linux."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{_boot()}/{ticks}"
    except (OSError, IndexError):
        return ""


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def has_ended(process: psutil.Process) -> bool:
    """Returns whether this very process runs no more; a zombie has ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def record_path(run_dir: Path, name: str) -> Path:
    return run_dir / "processes" / f"{name}.json"


def part_name(name: str, part: str) -> str:
    return f"{name}.{part}"


def is_worker(record: ProcessRecord) -> bool:
    """Returns whether it is a worker that a socket supervisor starts and replaces."""
    return record.name.endswith(tuple(f".{part}" for part in PARTS))


def read_record(run_dir: Path, name: str) -> ProcessRecord | None:
    """Returns the record of one process, or None if there is none (or an unreadable one)."""
    try:
        content = json.loads(record_path(run_dir, name).read_bytes())
        return ProcessRecord(
            **{item.name: content[item.name] for item in fields(ProcessRecord) if item.name in content}
        )
    except (OSError, ValueError, TypeError):  # being written, or removed, right now
        return None


def read_records(run_dir: Path) -> list[ProcessRecord]:
    """Returns all records of a run folder, dead processes included, sorted by name."""
    names = sorted(path.stem for path in (run_dir / "processes").glob("[!.]*.json"))
    return [record for name in names if (record := read_record(run_dir, name)) is not None]


def serving_record(run_dir: Path, name: str) -> ProcessRecord | None:
    """Returns the live worker that serves for the server `name`; None if none serves or it has no supervisor."""
    record = read_record(run_dir, part_name(name, SERVING))
    return record if record is not None and record.alive() else None


def has_worker(run_dir: Path, name: str) -> bool:
    """Returns whether a worker of the server `name` lives and so holds its port. The socket supervisor may be dead."""
    records = [read_record(run_dir, part_name(name, part)) for part in PARTS]
    return any(record is not None and record.alive() for record in records)


def engines_file(run_dir: Path) -> Path:
    """Names the policy's engines on other machines, with their addresses: {"engine-4": "http://10.0.0.2:21000"}."""
    return run_dir / "engines_elsewhere.json"


def engine_urls(run_dir: Path) -> list[str]:
    """Addresses of the policy's engines that the run has started, on this machine and on others."""
    own = [record.url for record in read_records(run_dir) if record.role == "engine" and record.url]
    try:
        elsewhere = json.loads(engines_file(run_dir).read_bytes())
    except (OSError, ValueError):  # there are none, or it is being written
        return own
    return [*own, *elsewhere.values()]


def live_processes(run_dir: Path) -> list[dict[str, Any]]:
    """Records of the run's processes that are alive, by name; a socket supervisor has the role `door`.

    Returns:
        `[{"name", "role", "pid", "create_time", "url", ...}]`; empty when there is no run folder yet.
    """
    alive = [record for record in read_records(run_dir) if record.alive()]
    suffix = part_name("", SERVING)
    supervised = {record.name.removesuffix(suffix) for record in alive if record.name.endswith(suffix)}
    role = {"role": SUPERVISOR_ROLE}
    return [asdict(record) | (role if record.name in supervised else {}) for record in alive]


def dead_roles(run_dir: Path) -> list[str]:
    """Roles that the run has records of, and no process that is alive."""
    records = read_records(run_dir)
    return sorted({record.role for record in records} - {record.role for record in records if record.alive()})


def record_self(run_dir: Path, name: str, role: str, command: Sequence[str] = ()) -> ProcessRecord:
    """Writes the record of the calling process."""
    record = describe(os.getpid(), name, role, None, list(command or sys.argv))
    write_record(run_dir, record)
    return record


def describe(pid: int, name: str, role: str, url: str | None, command: list[str]) -> ProcessRecord:
    """Returns the record of a process that runs. Raises psutil.NoSuchProcess."""
    created = psutil.Process(pid).create_time()
    return ProcessRecord(name, role, pid, created, url, command, time.time(), birth_of(pid))


def record_part(run_dir: Path, name: str, part: str, supervisor: int, pid: int | None) -> None:
    """Records which worker of the server `name` plays a part (one of `PARTS`); pid None: no worker does.

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
