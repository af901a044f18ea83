"""A worker's connection to its supervisor: messages, and what the worker does after the supervisor was killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import Protocol

from claw_base.hotswap import takeover
from claw_base.hotswap.children import has_ended
from claw_base.hotswap.takeover import TakeoverId

SPARE_DELAY_SECONDS = 0.5
"""Seconds until a spare is built, so that the new serving worker answers waiting clients first."""
MESSAGE = 4096
"""Longest message in bytes."""
BUILT, SERVING, SERVE, FINISH, REFUSED = b"built", b"serving", b"serve", b"finish", b"refused: "
STEP_IN = b"step in"
"""Message while the supervisor is replaced: serve without an order as soon as the serving worker exits."""


class Note(Protocol):
    """Records which pid has a role ("serving", "spare"); None: no process has it."""

    def __call__(self, part: str, pid: int | None) -> None: ...


class WorkerChannel:
    """A worker's end of the connection to its supervisor.

    Args:
        takeover_id: lets a new supervisor find the worker if this one was killed; None: the worker ends with the
            supervisor.
        first: no worker of this supervisor has served before.
        ahead: pid of the serving worker, which this one replaces when it exits; None: no worker serves.
        note: called when this worker serves without a supervisor.
    """

    def __init__(
        self,
        connection: socket.socket,
        takeover_id: TakeoverId | None,
        *,
        first: bool,
        ahead: int | None,
        note: Note = lambda part, pid: None,
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._takeover_id = takeover_id
        self._ahead = ahead
        self._note = note
        self.first = first

    @property
    def spare(self) -> bool:
        """Returns whether another worker serves, so that this one is the spare."""
        return self._ahead is not None and not has_ended(self._ahead)

    def delay_spare(self) -> None:
        """Delays the building of a spare, unless it is needed at once."""
        until = time.monotonic() + SPARE_DELAY_SECONDS
        while self.spare and time.monotonic() < until:
            time.sleep(0.02)

    def built(self) -> None:
        """Reports that the worker is ready to serve."""
        self._send(BUILT)

    def serving(self) -> None:
        """Reports that the worker accepts connections."""
        self._send(SERVING)

    def refuse(self, message: str) -> None:
        """Reports that the worker can never serve. The supervisor prints the message, and ends if none has served."""
        self._send(REFUSED + message.encode()[: MESSAGE - len(REFUSED)])

    async def wait_for_turn(self, listener: socket.socket) -> None:
        """Returns when the worker must serve: on the supervisor's order, or when the serving worker has exited while
        there is no supervisor. Ends the process if the worker is not needed."""
        steps_in = False
        while (message := await self._message(steps_in)) != SERVE:
            if message is None:
                self._note("serving", os.getpid())
                return
            if message == STEP_IN:
                steps_in = True
                continue
            if message or self._takeover_id is None:
                os._exit(0)
            connection = await takeover.wait_as_spare(self._takeover_id, listener, lambda: self.spare)
            if connection is None:
                self._note("serving", os.getpid())
                self._note("spare", None)
                return
            self._connection = connection

    async def wait_for_finish(self, listener: socket.socket) -> None:
        """Returns when the worker must finish its answers and exit."""
        while await self._message() != FINISH:
            if self._takeover_id is None:
                os._exit(0)
            connection = await takeover.wait_serving(self._takeover_id, listener)
            if connection is None:
                return
            self._connection = connection

    async def _message(self, steps_in: bool = False) -> bytes | None:
        """Returns the next message; empty if the other side has closed; None if this worker must serve because no
        other worker does."""
        has_data = False
        while not has_data:
            must_serve = steps_in and not self.spare
            try:
                async with asyncio.timeout(takeover.LOOK_SECONDS if steps_in else None):
                    await takeover.readable(self._connection)
                has_data = True
            except TimeoutError:
                if must_serve:
                    return None
        try:
            return self._connection.recv(MESSAGE)
        except OSError:
            return b""

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone; `wait_for_*` then returns
            self._connection.send(message)
