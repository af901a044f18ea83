"""A worker's side: the messages between it and its door, and its behaviour after the door was killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import Protocol

from claw_base.hotswap import orphans
from claw_base.hotswap.children import has_ended
from claw_base.hotswap.orphans import Lineage

SPARE_DELAY_SECONDS = 0.5
"""Until a spare is built: clients that waited for the one before come first."""
MESSAGE = 4096
"""Bytes, the longest."""
BUILT, SERVING, SERVE, FINISH, REFUSED = b"built", b"serving", b"serve", b"finish", b"refused: "
STEP_IN = b"step in"
"""While the door is replaced: serve without another word as soon as the one ahead has ended."""


class Note(Protocol):
    """Receives the pid that plays a part ("serving", "spare"); None: no process does."""

    def __call__(self, part: str, pid: int | None) -> None: ...


class Post:
    """A worker's end of the connection to its door.

    Args:
        lineage: how a new door finds it when this one was killed; None: it ends with the door.
        first: no worker of this door has served before.
        ahead: the pid of the serving worker, whose end this one waits for; None: no worker serves.
        note: called when this worker serves without a door.
    """

    def __init__(
        self,
        connection: socket.socket,
        lineage: Lineage | None,
        *,
        first: bool,
        ahead: int | None,
        note: Note = lambda part, pid: None,
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._lineage = lineage
        self._ahead = ahead
        self._note = note
        self.first = first

    @property
    def spare(self) -> bool:
        """Whether another one serves, so that there is no hurry."""
        return self._ahead is not None and not has_ended(self._ahead)

    def let_others_begin(self) -> None:
        """Waits a moment before a spare is built, unless it is needed at once."""
        until = time.monotonic() + SPARE_DELAY_SECONDS
        while self.spare and time.monotonic() < until:
            time.sleep(0.02)

    def built(self) -> None:
        """Ready to serve at a word."""
        self._send(BUILT)

    def serving(self) -> None:
        """Connections are accepted from now on."""
        self._send(SERVING)

    def refuse(self, message: str) -> None:
        """It can never serve; the door prints why, and ends if none has served before."""
        self._send(REFUSED + message.encode()[: MESSAGE - len(REFUSED)])

    async def wait_for_turn(self, listener: socket.socket) -> None:
        """Returns when the worker is to serve: on the door's order, or if the door is gone or being replaced and the
        serving worker has ended. Ends the process if it is not needed."""
        steps_in = False
        while (message := await self._message(steps_in)) != SERVE:
            if message is None:
                self._note("serving", os.getpid())
                return
            if message == STEP_IN:
                steps_in = True
                continue
            if message or self._lineage is None:
                os._exit(0)
            found = await orphans.wait_behind(self._lineage, listener, lambda: self.spare)
            if found is None:
                self._note("serving", os.getpid())
                self._note("spare", None)
                return
            self._connection = found

    async def wait_for_finish(self, listener: socket.socket) -> None:
        """Returns when it is to finish its answers and end."""
        while await self._message() != FINISH:
            if self._lineage is None:
                os._exit(0)
            found = await orphans.wait_serving(self._lineage, listener)
            if found is None:
                return
            self._connection = found

    async def _message(self, steps_in: bool = False) -> bytes | None:
        """Returns the next message; empty when the other side is gone; None if it steps in and no other process is
        before it."""
        there = False
        while not there:
            alone = steps_in and not self.spare
            try:
                async with asyncio.timeout(orphans.LOOK_SECONDS if steps_in else None):
                    await orphans.readable(self._connection)
                there = True
            except TimeoutError:
                if alone:
                    return None
        try:
            return self._connection.recv(MESSAGE)
        except OSError:
            return b""

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the door is gone; `wait_for_*` returns
            self._connection.send(message)
