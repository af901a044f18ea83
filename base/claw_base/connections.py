"""TCP connections whose requests fail soon after the remote machine disappears."""

from __future__ import annotations

import socket
from typing import Any

IDLE_SECONDS, INTERVAL_SECONDS, PROBES = 10, 5, 3
"""Keepalive: seconds of silence before the first probe, seconds between probes, number of probes. A lost machine is
detected after 25 s."""
_OPTIONS = {
    "TCP_KEEPIDLE": IDLE_SECONDS,
    "TCP_KEEPINTVL": INTERVAL_SECONDS,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": (IDLE_SECONDS + INTERVAL_SECONDS * PROBES) * 1000,
}
"""Socket options by name; not every system has all of them."""


def watched_socket(address: tuple[Any, ...]) -> socket.socket:
    """Returns a socket for an entry of `getaddrinfo` with TCP keepalive, so that requests fail if the remote machine
    disappears. Without it they would wait for their full time-out; an ordinary exit of the process closes its
    connections anyway."""
    family, kind, protocol = address[:3]
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
