"""Simulates another user of this machine with sockets and files that this user created. Needs root."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="only root can act as another user"
)


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """Files created inside belong to another user."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def connection_of_another_user(host: str, port: int) -> socket.socket:
    with another_user():
        return socket.create_connection((host, port), timeout=10)


def answer_to_another_user(host: str, port: int, method: str, path: str, headers: str = "") -> bytes:
    """Returns the whole answer to a request from another user without a key."""
    with connection_of_another_user(host, port) as connection:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 2\r\nConnection: close\r\n"
        )
        connection.sendall(f"{head}{headers}\r\n{{}}".encode())
        answer = b""
        while data := connection.recv(65536):
            answer += data
        return answer
