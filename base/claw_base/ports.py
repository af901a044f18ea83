"""Network ports of this machine."""

from __future__ import annotations

import errno
import socket

from claw_base.errors import ConfigError

BACKLOG = 2048


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
    """Returns a port of this machine on which nothing listens."""
    with listen("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])
