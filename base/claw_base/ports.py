"""Network ports of this machine."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

from claw_base.errors import ConfigError

BACKLOG = 2048
OWN_PORTS = range(20000, 30000)
"""Where `free_port` looks: above the ports of Ray's workers, and below the gateway's default."""
TRIES = 100
SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def bind(host: str, port: int) -> socket.socket:
    """Returns a bound socket that does not listen yet. Raises OSError if the port is taken."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; port 0: any free one. Raises ConfigError if it is not available."""
    try:
        listener = bind(host, port)
        listener.listen(BACKLOG)
    except socket.gaierror as error:
        raise ConfigError(
            f"{host} is neither an IP address nor a host name that this machine can resolve ({error.strerror}): give an "
            "address of this machine, or 127.0.0.1 (--host, HOST=...)"
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(
                f"{host} is not an address of this machine: give one of its addresses, or 127.0.0.1 (--host, HOST=...)"
            ) from error
        reason = error.strerror or error
        raise ConfigError(
            f"port {port} on {host} cannot be used ({reason}); free it, or choose another (--port, PORT=...)"
        ) from error
    return listener


def bind_error(host: str, port: int) -> OSError | None:
    """Returns the error that prevents a server from listening there, or None."""
    try:
        bind(host, port).close()
    except OSError as error:
        return error
    return None


def free_port() -> int:
    """Returns a port of this machine on which nothing listens.

    It is outside the range from which the system numbers outgoing connections and servers on port 0, so that none of them
    takes it before the caller does. If that range leaves no room, it is any free port.
    """
    first, last = _system_range()
    outside = [port for port in OWN_PORTS if not first <= port <= last]
    for port in random.SystemRandom().sample(outside, min(len(outside), TRIES)):
        if bind_error("127.0.0.1", port) is None:
            return port
    with listen("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


def _system_range() -> tuple[int, int]:
    """Returns the first and the last port that the system chooses for programs that name none."""
    try:
        first, last = SYSTEM_RANGE.read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):  # macOS
        return 49152, 65535
