"""Starts and stops servers that outlive their starter; manages their logs, and folders of a run outside its run
folder.

Signals are sent only to processes with a live record (`claw_base.run_folder.records`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from claw_base.files import append_to
from claw_base.run_folder.records import ProcessRecord, describe, read_record, write_record
from slime.errors import ConfigError, EngineError

SHARED_MEMORY = Path("/dev/shm")
SHORT_PLACES = ("/tmp", "/var/tmp", "/dev/shm")
SOCKET_ADDRESS = 103 if sys.platform == "darwin" else 107
"""Most bytes of a Unix socket's path."""
RAY_ROOM = len("//r/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""Bytes of Ray's socket paths below a run's temporary folder."""
LIBRARY_ROOM = 48
"""The same for vLLM, SGLang and Python's multiprocessing, which use TMPDIR themselves."""
# Environment variable that Ray processes inherit from the driver and servers do not: its carriers end with the
# driver, even if they were reparented.
MARK = "SLIME_DRIVER_OF"


def log_path(run_dir: Path, name: str) -> Path:
    return run_dir / "logs" / f"{name}.log"


def spawn(
    run_dir: Path, name: str, role: str, command: Sequence[str], url: str | None, env: Mapping[str, str]
) -> ProcessRecord:
    """Starts a server that outlives its starter.

    A helper process creates a new session and forks; the fork writes its own record and executes the command, so the
    server never runs without a record. It has no living parent: neither Ray's clean-up of a worker's children nor the
    driver's death affects it. Output: `RUN_DIR/logs/NAME.log`.

    Raises:
        EngineError: the command could not be executed; the message ends with the log's last lines.
    """
    log_path(run_dir, name).parent.mkdir(parents=True, exist_ok=True)
    order = json.dumps(
        {"run_dir": str(run_dir), "name": name, "role": role, "url": url, "command": list(command)}
    )
    helper = [sys.executable, "-m", "slime.processes.control", order]
    done = subprocess.run(
        helper, env=dict(env), stdin=subprocess.DEVNULL, start_new_session=True, check=False
    )
    record = read_record(run_dir, name)
    if done.returncode != 0 or record is None:
        raise EngineError(f"{name} could not be started: {' '.join(command)}\n{log_tail(run_dir, name)}")
    return record


def log_size(run_dir: Path, name: str) -> int:
    """Returns bytes in a process's log; 0 if there is none."""
    path = log_path(run_dir, name)
    return path.stat().st_size if path.exists() else 0


def log_tail(run_dir: Path, name: str, lines: int = 15) -> str:
    """Returns the last lines of a process's log, with the file's name, for an error message."""
    path = log_path(run_dir, name)
    try:
        text = path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        text = []
    return "\n".join([f"--- {path}", *text])


def terminate(record: ProcessRecord, grace: float = 8.0) -> None:
    """Stops the process of a record, with SIGKILL after `grace` seconds, and its remaining descendants."""
    if not record.alive():
        return
    family = [record]
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(record.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                family.append(ProcessRecord("", "", child.pid, child.create_time(), None, [], 0.0))
    send(record, "terminate")
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and record.alive():
        time.sleep(0.05)
    for member in family:
        send(member, "kill")
    while record.alive():
        time.sleep(0.02)


def mark_of(run_dir: Path) -> str:
    return str(run_dir.resolve())


def kill_marked(run_dir: Path) -> None:
    """Kills the remaining processes of a driver of this run folder: the processes that inherited its mark."""
    run_mark = mark_of(run_dir)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == run_mark:
                process.kill()


def scratch_dir(run_dir: Path) -> Path:
    """Returns a folder for temporary files of this run, among them Ray's sockets, whose addresses have few bytes.
    Raises ConfigError if every place for temporary files has too long a path."""
    name = _scratch_name(run_dir)
    return temporary_place(len(name) + RAY_ROOM) / name


def temporary_place(room: int) -> Path:
    """Returns the folder of temporary files, or another system folder if socket paths `room` bytes longer would be
    too long. Raises ConfigError if there is none."""
    longest = SOCKET_ADDRESS - room
    places = [tempfile.gettempdir(), *SHORT_PLACES]
    for place in places:
        if len(os.fsencode(place)) <= longest and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    raise ConfigError(
        f"no folder for sockets: the path {places[0]} has more than {longest} bytes, and none of "
        f"{', '.join(SHORT_PLACES)} can be written; set TMPDIR to a folder with a shorter path"
    )


def with_short_temporary(env: Mapping[str, str]) -> dict[str, str]:
    """Returns this environment with a TMPDIR that is short enough for libraries' sockets. Raises ConfigError."""
    place = str(temporary_place(LIBRARY_ROOM))
    return dict(env) if place == tempfile.gettempdir() else {**env, "TMPDIR": place}


def _scratch_name(run_dir: Path) -> str:
    digest = hashlib.sha256(mark_of(run_dir).encode()).hexdigest()[:8]
    return f"slime-{os.getuid()}-{digest}"


def memory_dir(run_dir: Path) -> Path:
    """Returns a folder in shared memory for weights on their way to engines."""
    return SHARED_MEMORY / _scratch_name(run_dir)


def send(record: ProcessRecord, action: str) -> None:
    if record.alive():
        with contextlib.suppress(psutil.NoSuchProcess):
            getattr(psutil.Process(record.pid), action)()


def become_server(order: str) -> int:
    """The helper of `spawn`: forks, waits until the fork executes the command; returns an exit status."""
    spec = json.loads(order)
    run_dir = Path(spec.pop("run_dir"))
    reader, writer = os.pipe()  # both ends close on exec: end of file means that the command runs
    if os.fork() != 0:
        os.close(writer)
        return 1 if os.read(reader, 1) else 0
    log = append_to(log_path(run_dir, spec["name"]))
    os.dup2(log, 1)
    os.dup2(log, 2)
    record = describe(os.getpid(), **spec)
    write_record(run_dir, record)
    try:
        os.execvp(record.command[0], record.command)
    except OSError as error:
        os.write(2, f"{record.command[0]}: {error.strerror}\n".encode())
        os.write(writer, b"!")
        os._exit(127)


if __name__ == "__main__":
    sys.exit(become_server(sys.argv[1]))
