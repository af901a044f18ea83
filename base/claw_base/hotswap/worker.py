"""What a door knows of a worker, and how it talks to it."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from claw_base.hotswap.post import MESSAGE


@dataclass
class Worker:
    """`state`: building, spare, serving, or old (it finishes its answers, or may step in)."""

    pid: int
    connection: socket.socket
    state: str = "building"


def received(connection: object) -> bytes:
    """What there is to read; empty when the other side is gone."""
    assert isinstance(connection, socket.socket)
    try:
        return connection.recv(MESSAGE)
    except OSError:
        return b""


def tell(worker: Worker, message: bytes) -> None:
    """Nothing happens if it is gone, which is read next."""
    with contextlib.suppress(OSError):
        worker.connection.send(message)
