"""A worker's side: what it and its door tell each other, and how it serves on when the door was killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct

ORPHAN_SECONDS = 180.0
"""How long a worker without its door serves on, if nobody takes over."""
MESSAGE = 4096
"""Bytes, the longest."""
BUILT, SERVING, SERVE, FINISH, REFUSED = b"built", b"serving", b"serve", b"finish", b"refused: "


class Post:
    """A worker's end of the connection to its door.

    Args:
        name: under which a new door finds it when this one was killed; None: it ends with the door.
        first: no worker of this door has served before.
        spare: another one serves, so there is no hurry.
    """

    def __init__(self, connection: socket.socket, name: str | None, *, first: bool, spare: bool) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._name = name
        self.first = first
        self.spare = spare

    def built(self) -> None:
        """Ready to serve at a word."""
        self._send(BUILT)

    def serving(self) -> None:
        """Connections are accepted from now on."""
        self._send(SERVING)

    def refuse(self, message: str) -> None:
        """It can never serve; the door prints why, and ends if none has served before."""
        self._send(REFUSED + message.encode()[: MESSAGE - len(REFUSED)])

    async def wait_for_turn(self) -> None:
        """Returns when it is to serve; ends the process when the door is gone."""
        if await _message(self._connection) != SERVE:
            os._exit(0)

    async def wait_for_finish(self, listener: socket.socket) -> None:
        """Returns when it is to finish its answers and end."""
        while True:
            if await _message(self._connection) == FINISH:
                return
            if self._name is None:
                os._exit(0)
            found = await _orphaned(self._name, listener)
            if found is None:
                return
            self._connection = found

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the door is gone; `wait_for_*` tells
            self._connection.send(message)


def take_over(name: str) -> tuple[socket.socket, int, socket.socket] | None:
    """From a worker whose door was killed: the listening socket, its pid, and the connection to it, for `inherit`. None
    where there is no such worker of this user."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(2.0)
        connection.connect(_address(name))
        pid, user = _peer(connection)
        if user != os.getuid():
            raise PermissionError(name)
        _, descriptors, _, _ = socket.recv_fds(connection, MESSAGE, 1)
        connection.settimeout(None)
        return socket.socket(fileno=descriptors[0]), pid, connection
    except (OSError, IndexError):
        connection.close()
        return None


async def _orphaned(name: str, listener: socket.socket) -> socket.socket | None:
    """Serves on until a new door asks for the socket; returns the connection to it, None when none came."""
    loop = asyncio.get_running_loop()
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as waiting:
        waiting.bind(_address(name))
        waiting.listen(1)
        waiting.setblocking(False)
        deadline = loop.time() + ORPHAN_SECONDS
        while (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait_for(_readable(waiting), left)
            except TimeoutError:
                break
            connection, _ = waiting.accept()
            if _peer(connection)[1] == os.getuid():
                socket.send_fds(connection, [SERVING], [listener.fileno()])
                connection.setblocking(False)
                return connection
            connection.close()
    return None


async def _message(connection: socket.socket) -> bytes:
    """The next one; empty when the other side is gone."""
    await _readable(connection)
    try:
        return connection.recv(MESSAGE)
    except OSError:
        return b""


async def _readable(of: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()
    loop.add_reader(of.fileno(), lambda: None if there.done() else there.set_result(None))
    try:
        await there
    finally:
        loop.remove_reader(of.fileno())


def _address(name: str) -> str:
    """In the abstract name space: nothing is left behind in a folder, and no path is too long."""
    return f"\0door/{os.getuid()}/{name}"


def _peer(connection: socket.socket) -> tuple[int, int]:
    """(pid, user id) of the other side."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user
