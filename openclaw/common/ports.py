"""The port to listen on, taken before anything slow starts."""

from __future__ import annotations

import socket

from openclaw.errors import ConfigError

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0: any free one. Raises ConfigError when it cannot be had."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise ConfigError(
            f"port {port} on {host} cannot be used ({reason}); free it, or choose another (--port, PORT=...)"
        ) from error
    return listener


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with listen("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])
