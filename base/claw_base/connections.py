"""Connections to other machines that end soon after the machine is gone."""

from __future__ import annotations

import socket
from typing import Any

IDLE_SECONDS, INTERVAL_SECONDS, PROBES = 10, 5, 3
"""A peer that is silent for the first, and for each probe after it, is gone: 25 s without power or cable."""
_OPTIONS = {
    "TCP_KEEPIDLE": IDLE_SECONDS,
    "TCP_KEEPINTVL": INTERVAL_SECONDS,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": (IDLE_SECONDS + INTERVAL_SECONDS * PROBES) * 1000,
}
"""By the names of the socket module, some of which a system lacks."""


def watched_socket(address: tuple[Any, ...]) -> socket.socket:
    """Returns a socket for an entry of `getaddrinfo`, whose open requests fail if the machine of the peer is gone.
    Without this they wait as long as an answer may take; a process that ends closes its connections by itself."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
