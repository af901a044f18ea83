"""The remains of a killed door: its workers, of which one serves and one waits behind it, and a keeper of the socket.

Each waits at a socket in a folder of the run's user, where no other account can take its name first, until a new door
asks, and hands the listening socket to a process of the same user. The keeper does nothing else: where the workers
were killed too, connections wait for the new door and none is refused. After an orderly end of the door the socket no
longer listens; workers that no door has found in time see that and end too.
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

ORPHAN_SECONDS = 180.0
"""Seconds for which workers without a door go on, if no door takes over."""
LOOK_SECONDS = 0.02
"""Between the looks of the one that waits whether the other still serves."""
CHANGING_SECONDS = 1.0
"""Longest time for which no worker of a killed door holds the name: one has just died, and the other takes its place."""
BEFORE_ITS_TURN_SECONDS = 0.15
"""Time in which a new door can still find the waiting worker as a spare after the serving one has ended."""
WORKERS = ("serving", "spare")
KEEPER = "keeper"
_MESSAGE = 4096


@dataclass(frozen=True)
class Lineage:
    """Identifies the workers of a killed door for a new one.

    Attributes:
        name: of the port.
        kind: what they serve, as a digest: those of the same kind go on, others are replaced.
        folder: where they wait; see `meeting_place`.
    """

    name: str
    kind: str
    folder: Path


@dataclass(frozen=True)
class Orphan:
    """A process that a new door found. `part`: of `WORKERS`, or the keeper; `kind`: of its lineage."""

    pid: int
    part: str
    kind: str
    connection: socket.socket
    listener: socket.socket


def find(lineage: Lineage) -> list[Orphan]:
    """Returns the workers that wait for a door, who serves first."""
    found = [_ask(lineage, part) for part in WORKERS]
    return [orphan for orphan in found if orphan is not None]


def take_over(lineage: Lineage, open_port: Callable[[], socket.socket]) -> tuple[socket.socket, list[Orphan]]:
    """Returns the listening socket of a killed door and its workers, for `Door.adopt`; a new socket where there are
    none. Raises what `open_port` does."""
    deadline = time.monotonic() + CHANGING_SECONDS
    keeper = _ask(lineage, KEEPER)
    if keeper is not None:
        keeper.connection.close()
        found = find(lineage)
    while keeper is None and not (found := find(lineage)):
        try:
            return open_port(), []
        except Exception:  # of any kind: workers that do not answer yet may hold the port
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)
    for orphan in found[1:] if keeper is None else found:
        orphan.listener.close()
    return (found[0] if keeper is None else keeper).listener, found


def keep(lineage: Lineage, listener: socket.socket) -> int:
    """The life of the keeper: it ends when a new door has the socket, or none came in time. Returns an exit status."""
    door, deadline = os.getppid(), None
    with Waiting(lineage, KEEPER) as waiting:
        bound = False
        while deadline is None or (time.monotonic() < deadline and is_listening(listener)):
            bound = bound or waiting.bind()
            if deadline is None and os.getppid() != door:
                deadline = time.monotonic() + ORPHAN_SECONDS
            if not bound:
                time.sleep(LOOK_SECONDS)
            elif select.select([waiting.socket], [], [], 1.0)[0] and _hand_over(waiting, listener):
                return 0
    return 0


async def wait_serving(lineage: Lineage, listener: socket.socket) -> socket.socket | None:
    """Returns the serving worker's connection to a new door; None if none came in time."""
    return await _wait(lineage, "serving", listener, ORPHAN_SECONDS, lambda: True)


async def wait_behind(
    lineage: Lineage, listener: socket.socket, is_behind: Callable[[], bool]
) -> socket.socket | None:
    """Returns the waiting worker's connection to a new door; None if the worker is to serve because no other is ahead
    of it. Ends the process if no door came in time, or none is wanted."""
    found = await _wait(lineage, "spare", listener, ORPHAN_SECONDS - 1.0, is_behind)
    found = found or await _wait(lineage, "spare", listener, BEFORE_ITS_TURN_SECONDS, lambda: True)
    if found is None and (is_behind() or not is_listening(listener)):
        os._exit(0)
    return found


def is_listening(listener: socket.socket) -> bool:
    """False when a door has closed it for all who share it."""
    return bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


async def readable(of: socket.socket) -> None:
    """Returns when there is something to read, or the other side is gone."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()
    loop.add_reader(of.fileno(), lambda: None if there.done() else there.set_result(None))
    try:
        await there
    finally:
        loop.remove_reader(of.fileno())


async def _wait(
    lineage: Lineage, part: str, listener: socket.socket, seconds: float, is_needed: Callable[[], bool]
) -> socket.socket | None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with Waiting(lineage, part) as waiting:
        waiting.socket.setblocking(False)
        bound = False
        while loop.time() < deadline and is_needed() and is_listening(listener):
            if not bound and not (bound := waiting.bind()):
                # Another one has the name, until it has been found or has ended
                await asyncio.sleep(LOOK_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(readable(waiting.socket), LOOK_SECONDS)
                if connection := _hand_over(waiting, listener):
                    connection.setblocking(False)
                    return connection
    return None


def _hand_over(waiting: Waiting, listener: socket.socket) -> socket.socket | None:
    """Gives the socket to who asks; the connection to it. None for another user's process."""
    connection, _ = waiting.socket.accept()
    if _peer(connection)[1] == os.getuid():
        with contextlib.suppress(OSError):  # it has just ended; the connection shows that
            socket.send_fds(connection, [waiting.lineage.kind.encode()], [listener.fileno()])
        return connection
    connection.close()
    return None


class Waiting:
    """A socket whose name at most one living process has: its lock file is released with its process. The files of a
    killed process stay until another process takes the name or a door ends."""

    def __init__(self, lineage: Lineage, part: str) -> None:
        self.lineage = lineage
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._path = lineage.folder / _file(lineage, part)
        self._lock_file = lineage.folder / f"{_file(lineage, part)}.lock"
        self._lock: int | None = None

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *about: object) -> None:
        if self._lock is not None:
            self._remove(self._lock)
        self.socket.close()

    def bind(self) -> bool:
        """False while another process has the name."""
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
        """Removes what a killed process left, unless another one has the name."""
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
                raise FileNotFoundError(self._lock_file)  # its owner removed it after we had opened it
        except OSError:
            if lock is not None:
                os.close(lock)
            return None
        return lock


def forget(lineage: Lineage) -> None:
    """Removes what is left of the sockets, when a door ends orderly and its processes have."""
    for part in (*WORKERS, KEEPER):
        with contextlib.suppress(OSError), Waiting(lineage, part) as waiting:
            waiting.forget()


def meeting_place(folder: Path) -> Path:
    """This folder of the run, created if it is missing; where its file system has no sockets, a folder of this user among
    the temporary files. Raises ConfigError if another user has put something there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = f".door-{os.getpid()}"
    try:
        with (
            contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as tried,
            _short(folder) as short,
        ):
            tried.bind(f"{short}/{probe}")
        (folder / probe).unlink()
    except OSError:
        return private_folder(Path(tempfile.gettempdir()) / f"claw-door-{os.getuid()}")
    return folder


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Another name of a folder, short enough for the address of a socket in it."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _ask(lineage: Lineage, part: str) -> Orphan | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(2.0)
        with _short(lineage.folder) as folder:
            connection.connect(f"{folder}/{_file(lineage, part)}")
        pid, user = _peer(connection)
        if user != os.getuid():
            raise PermissionError(lineage.name)
        kind, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE, 1)
        connection.settimeout(None)
        return Orphan(pid, part, kind.decode(), connection, socket.socket(fileno=descriptors[0]))
    except (OSError, IndexError):
        connection.close()
        return None


def _file(lineage: Lineage, part: str) -> str:
    return f".door-{lineage.name.replace('/', '_')}.{part}"


def _peer(connection: socket.socket) -> tuple[int, int]:
    """(pid, user id) of the other side."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user
