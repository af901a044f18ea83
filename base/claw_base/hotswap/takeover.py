"""Takeover after a supervisor was killed: the new one finds the serving worker, the spare and the keeper process.

Each of these listens at a local socket in a folder that only the run's user can write, and passes the listening
socket to a new supervisor of the same user. The keeper only holds the socket: if the workers were killed too,
connections wait for the new supervisor and none is refused. A supervisor that exits normally shuts the socket down;
workers that no supervisor has found by then notice it and exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from claw_base.files import private_folder

UNSUPERVISED_SECONDS = 180.0
"""Seconds for which workers continue without a supervisor."""
LOOK_SECONDS = 0.02
"""Interval in seconds at which a waiting process checks whether it is needed."""
CHANGING_SECONDS = 1.0
"""Longest time in seconds for which no worker of a killed supervisor has the name: the serving one died, and the
spare is taking over."""
BEFORE_ITS_TURN_SECONDS = 0.15
"""Seconds in which a new supervisor can still find the waiting worker as a spare after the serving one has exited."""
WORKERS = ("serving", "spare")
KEEPER = "keeper"
_MESSAGE = 4096


@dataclass(frozen=True)
class TakeoverId:
    """Identifies the workers of a killed supervisor for a new one.

    Attributes:
        name: host and port.
        kind: digest of the settings: workers of the same kind continue, others are replaced.
        folder: folder of the sockets at which they wait; see `socket_folder`.
    """

    name: str
    kind: str
    folder: Path


@dataclass(frozen=True)
class ReclaimedWorker:
    """A process of a killed supervisor. `part`: one of `WORKERS`, or the keeper; `kind`: digest of its settings."""

    pid: int
    part: str
    kind: str
    connection: socket.socket
    listener: socket.socket


def find(takeover_id: TakeoverId) -> list[ReclaimedWorker]:
    """Returns the workers that wait for a supervisor, the serving one first."""
    answers = [_ask(takeover_id, part) for part in WORKERS]
    return [worker for worker in answers if worker is not None]


def take_over(
    takeover_id: TakeoverId, open_port: Callable[[], socket.socket]
) -> tuple[socket.socket, list[ReclaimedWorker]]:
    """Returns the listening socket of a killed supervisor and its workers, for `SocketSupervisor.adopt`; a new socket if
    there are none. Raises the errors of `open_port`."""
    deadline = time.monotonic() + CHANGING_SECONDS
    keeper = _ask(takeover_id, KEEPER)
    if keeper is not None:
        keeper.connection.close()
        workers = find(takeover_id)
    while keeper is None and not (workers := find(takeover_id)):
        try:
            return open_port(), []
        except Exception:  # any error: workers that do not answer yet may hold the port
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)
    for worker in workers[1:] if keeper is None else workers:
        worker.listener.close()
    return (workers[0] if keeper is None else keeper).listener, workers


def hold_socket(takeover_id: TakeoverId, listener: socket.socket) -> int:
    """Runs the keeper process until a new supervisor has the socket, or a time-out. Returns its exit status."""
    supervisor, deadline = os.getppid(), None
    with Waiting(takeover_id, KEEPER) as waiting:
        bound = False
        while deadline is None or (time.monotonic() < deadline and is_listening(listener)):
            bound = bound or waiting.bind()
            if deadline is None and os.getppid() != supervisor:
                deadline = time.monotonic() + UNSUPERVISED_SECONDS
            if not bound:
                time.sleep(LOOK_SECONDS)
            elif select.select([waiting.socket], [], [], 1.0)[0] and _hand_over(waiting, listener):
                return 0
    return 0


async def wait_serving(takeover_id: TakeoverId, listener: socket.socket) -> socket.socket | None:
    """Returns the serving worker's connection to a new supervisor; None after a time-out."""
    return await _wait(takeover_id, "serving", listener, UNSUPERVISED_SECONDS, lambda: True)


async def wait_as_spare(
    takeover_id: TakeoverId, listener: socket.socket, is_spare: Callable[[], bool]
) -> socket.socket | None:
    """Returns the spare's connection to a new supervisor; None if no other worker serves, so that the spare must.
    Ends the process after a time-out, or if the socket was shut down."""
    connection = await _wait(takeover_id, "spare", listener, UNSUPERVISED_SECONDS - 1.0, is_spare)
    connection = connection or await _wait(
        takeover_id, "spare", listener, BEFORE_ITS_TURN_SECONDS, lambda: True
    )
    if connection is None and (is_spare() or not is_listening(listener)):
        os._exit(0)
    return connection


def is_listening(listener: socket.socket) -> bool:
    """Returns False after a supervisor has shut the socket down for all processes that share it."""
    return bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


async def readable(of: socket.socket) -> None:
    """Returns when data can be read, or the other side has closed."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(of.fileno(), lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(of.fileno())


async def _wait(
    takeover_id: TakeoverId, part: str, listener: socket.socket, seconds: float, is_needed: Callable[[], bool]
) -> socket.socket | None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with Waiting(takeover_id, part) as waiting:
        waiting.socket.setblocking(False)
        bound = False
        while loop.time() < deadline and is_needed() and is_listening(listener):
            if not bound and not (bound := waiting.bind()):
                # another worker has the name, until it has been found or has exited
                await asyncio.sleep(LOOK_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(readable(waiting.socket), LOOK_SECONDS)
                if connection := _hand_over(waiting, listener):
                    connection.setblocking(False)
                    return connection
    return None


def _hand_over(waiting: Waiting, listener: socket.socket) -> socket.socket | None:
    """Sends the listening socket to the process that connects. Returns the connection, or None if it belongs to
    another user."""
    connection, _ = waiting.socket.accept()
    if _peer(connection)[1] == os.getuid():
        with contextlib.suppress(OSError):  # the process has just exited; the connection shows that
            socket.send_fds(connection, [waiting.takeover_id.kind.encode()], [listener.fileno()])
        return connection
    connection.close()
    return None


class Waiting:
    """A local socket with a name that only one living process can hold: its lock is released when the process exits.
    The files of a killed process stay until another process takes the name or a supervisor ends."""

    def __init__(self, takeover_id: TakeoverId, part: str) -> None:
        self.takeover_id = takeover_id
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._path = takeover_id.folder / _file(takeover_id, part)
        self._lock_file = takeover_id.folder / f"{_file(takeover_id, part)}.lock"
        self._lock: int | None = None

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *about: object) -> None:
        if self._lock is not None:
            self._remove(self._lock)
        self.socket.close()

    def bind(self) -> bool:
        """Acquires the name. Returns False while another process has it."""
        lock = self._locked()
        if lock is None:
            return False
        try:
            self._path.unlink(missing_ok=True)
            with _short(self._path.parent) as folder:
                self.socket.bind(f"{folder}/{self._path.name}")
        except OSError:
            os.close(lock)
            return False
        self.socket.listen(1)
        self._lock = lock
        return True

    def forget(self) -> None:
        """Removes the files of a killed process, unless another process has the name."""
        if self._lock_file.exists() and (lock := self._locked()) is not None:
            self._remove(lock)

    def _remove(self, lock: int) -> None:
        self._path.unlink(missing_ok=True)
        self._lock_file.unlink(missing_ok=True)
        os.close(lock)

    def _locked(self) -> int | None:
        lock = None
        try:
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock), self._lock_file.lstat()):
                raise FileNotFoundError(self._lock_file)  # its owner removed the file after we had opened it
        except OSError:
            if lock is not None:
                os.close(lock)
            return None
        return lock


def forget(takeover_id: TakeoverId) -> None:
    """Removes the files of the sockets, after a supervisor's processes have ended."""
    for part in (*WORKERS, KEEPER):
        with contextlib.suppress(OSError), Waiting(takeover_id, part) as waiting:
            waiting.forget()


def socket_folder(folder: Path) -> Path:
    """Returns `folder`, created if it is missing; a temporary folder of this user if its file system does not support
    sockets. Raises ConfigError if another user owns it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = f".door-{os.getpid()}"
    try:
        with (
            contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as probe_socket,
            _short(folder) as short,
        ):
            probe_socket.bind(f"{short}/{probe}")
        (folder / probe).unlink()
    except OSError:
        return private_folder(Path(tempfile.gettempdir()) / f"claw-door-{os.getuid()}")
    return folder


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yields a shorter path of a folder, because addresses of local sockets are limited."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _ask(takeover_id: TakeoverId, part: str) -> ReclaimedWorker | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(2.0)
        with _short(takeover_id.folder) as folder:
            connection.connect(f"{folder}/{_file(takeover_id, part)}")
        pid, user = _peer(connection)
        if user != os.getuid():
            raise PermissionError(takeover_id.name)
        kind, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE, 1)
        connection.settimeout(None)
        return ReclaimedWorker(pid, part, kind.decode(), connection, socket.socket(fileno=descriptors[0]))
    except (OSError, IndexError):
        connection.close()
        return None


def _file(takeover_id: TakeoverId, part: str) -> str:
    return f".door-{takeover_id.name.replace('/', '_')}.{part}"


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Returns the pid and the user id of the other side."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user
