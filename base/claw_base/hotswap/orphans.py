"""What a killed door leaves: its workers, of which one serves and one waits behind it, and a keeper of the socket.

Each waits at a name in the abstract name space (nothing is left behind in a folder, no path is too long) until a new
door asks, and hands the listening socket to a process of the same user. The keeper does nothing else: where the workers
were killed too, connections wait for the new door and none is refused. Where a door has ended orderly the socket
listens no more; that tells those which nobody found in time to end too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

ORPHAN_SECONDS = 180.0
"""How long workers without a door go on, if nobody takes over."""
LOOK_SECONDS = 0.02
"""Between the looks of the one that waits whether the other still serves."""
CHANGING_SECONDS = 1.0
"""How long the workers of a killed door may have no name: one has just died, and the other takes its place."""
BEFORE_ITS_TURN_SECONDS = 0.15
"""How long the one that waits, when nobody serves any more, still lets a new door find it as a spare."""
WORKERS = ("serving", "spare")
KEEPER = "keeper"
_MESSAGE = 4096


@dataclass(frozen=True)
class Lineage:
    """How a new door finds the workers of a killed one.

    Attributes:
        name: of the port.
        kind: what they serve, as a digest: those of the same kind go on, others are replaced.
    """

    name: str
    kind: str


@dataclass(frozen=True)
class Orphan:
    """A process that a new door found. `part`: of `WORKERS`, or the keeper; `kind`: of its lineage."""

    pid: int
    part: str
    kind: str
    connection: socket.socket
    listener: socket.socket


def find(lineage: Lineage) -> list[Orphan]:
    """The workers that wait for a door, who serves first."""
    found = [_ask(lineage, part) for part in WORKERS]
    return [orphan for orphan in found if orphan is not None]


def take_over(lineage: Lineage, open_port: Callable[[], socket.socket]) -> tuple[socket.socket, list[Orphan]]:
    """The listening socket of a killed door and its workers, for `Door.adopt`; a new socket where there are none. Raises
    what `open_port` does."""
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
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as waiting:
        bound = False
        while deadline is None or (time.monotonic() < deadline and is_listening(listener)):
            bound = bound or _bind(waiting, _address(lineage, KEEPER))
            if deadline is None and os.getppid() != door:
                deadline = time.monotonic() + ORPHAN_SECONDS
            if not bound:
                time.sleep(LOOK_SECONDS)
            elif select.select([waiting], [], [], 1.0)[0] and _hand_over(waiting, lineage, listener):
                return 0
    return 0


async def wait_serving(lineage: Lineage, listener: socket.socket) -> socket.socket | None:
    """Of the one that serves: the connection to a new door; None when none came in time."""
    return await _wait(lineage, "serving", listener, ORPHAN_SECONDS, lambda: True)


async def wait_behind(
    lineage: Lineage, listener: socket.socket, is_behind: Callable[[], bool]
) -> socket.socket | None:
    """Of the one that waits: the connection to a new door; None when it is to serve, as nobody is before it any more.
    Ends the process when no door came in time, or none is wanted."""
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
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as waiting:
        waiting.setblocking(False)
        bound = False
        while loop.time() < deadline and is_needed() and is_listening(listener):
            if not bound and not (bound := _bind(waiting, _address(lineage, part))):
                # Another one has the name, until it has been found or has ended
                await asyncio.sleep(LOOK_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(readable(waiting), LOOK_SECONDS)
                if connection := _hand_over(waiting, lineage, listener):
                    connection.setblocking(False)
                    return connection
    return None


def _hand_over(waiting: socket.socket, lineage: Lineage, listener: socket.socket) -> socket.socket | None:
    """Gives the socket to who asks; the connection to it. None for another user's process."""
    connection, _ = waiting.accept()
    if _peer(connection)[1] == os.getuid():
        with contextlib.suppress(OSError):  # it has just ended; the connection tells
            socket.send_fds(connection, [lineage.kind.encode()], [listener.fileno()])
        return connection
    connection.close()
    return None


def _bind(waiting: socket.socket, address: str) -> bool:
    try:
        waiting.bind(address)
    except OSError:
        return False
    waiting.listen(1)
    return True


def _ask(lineage: Lineage, part: str) -> Orphan | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(2.0)
        connection.connect(_address(lineage, part))
        pid, user = _peer(connection)
        if user != os.getuid():
            raise PermissionError(lineage.name)
        kind, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE, 1)
        connection.settimeout(None)
        return Orphan(pid, part, kind.decode(), connection, socket.socket(fileno=descriptors[0]))
    except (OSError, IndexError):
        connection.close()
        return None


def _address(lineage: Lineage, part: str) -> str:
    return f"\0door/{os.getuid()}/{lineage.name}/{part}"


def _peer(connection: socket.socket) -> tuple[int, int]:
    """(pid, user id) of the other side."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user
