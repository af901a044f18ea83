"""Ports of this machine."""

from __future__ import annotations

import socket


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, before anything slow happens; raises OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def bind_error(host: str, port: int) -> OSError | None:
    """Why a server could not listen there, or None if it could."""
    try:
        listen(host, port).close()
    except OSError as error:
        return error
    return None
