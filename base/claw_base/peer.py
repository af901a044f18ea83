"""Finds the user of the process at the other end of a local TCP connection. Linux only.

The user comes from the kernel's answer about the socket (`sock_diag(7)`), or from its table of connections if that
query is not allowed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import sys
import threading
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

Address = tuple[str, int]

ESTABLISHED = 1
"""TCP state of an established connection; in other states the kernel may report no owner, or the listener's."""
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_ENDPOINTS = struct.Struct("!HH16s16s")
_ANY_SOCKET = struct.pack("=I8s", 0, b"\xff" * 8)
_STATE_OFFSET, _USER_OFFSET = _HEADER.size + 1, _HEADER.size + 64
_MAX_ANSWER_BYTES = 8192

_TIMEOUT_SECONDS = 1.0
ANSWER_SECONDS = 5.0
_lock = threading.Lock()
_kernels: dict[int, socket.socket] = {}

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = bytes(10) + b"\xff\xff"


def user_of(client: Address, server: Address) -> int | None:
    """Returns the user id of the process that opened a local connection; None if it is closed or the kernel does not
    report the user.

    Args:
        client, server: (address, port) of both ends, as the server sees them.
    """
    if not (_is_ip(client) and _is_ip(server)):
        return None
    try:
        return _owner_from_kernel(client, server)
    except OSError:
        return _owner_from_table(client, server)


def serves_own_user(url: str) -> bool:
    """Returns whether a process of this process's user answers HTTP at this local address; True if the kernel
    cannot identify users. It waits for an answer, because a connection has no user until a process accepts it."""
    if not can_identify_users():
        return True
    try:
        parts = urlsplit(url)
        place = parts.hostname or "", parts.port or 80
        with socket.create_connection(place, ANSWER_SECONDS) as connection:
            connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
            connection.recv(1)
            return user_of(connection.getpeername()[:2], connection.getsockname()[:2]) == os.getuid()
    except (OSError, ValueError):
        return False


@cache
def can_identify_users() -> bool:
    """Returns whether `user_of` works here: not outside Linux, nor in WSL, where root relays connections from
    Windows. Servers test it once at start; later a client could have used up this process's file descriptors."""
    if not sys.platform.startswith("linux") or "microsoft" in os.uname().release.lower():
        return False
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname(), 1.0) as connection:
            return user_of(connection.getsockname(), listener.getsockname()) == os.getuid()
    return False


def _is_ip(end: Address) -> bool:
    """Returns False for a request that did not come through a socket."""
    try:
        ipaddress.ip_address(end[0])
    except ValueError:
        return False
    return isinstance(end[1], int)


def _owner_from_kernel(client: Address, server: Address) -> int | None:
    """Returns the user id by a netlink query. Raises OSError if the kernel, or a security rule, rejects it."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = _ENDPOINTS.pack(
        client[1], server[1], socket.inet_pton(family, client[0]), socket.inet_pton(family, server[0])
    )
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends + _ANY_SOCKET
    head = _HEADER.pack(_HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    answer = _exchange(head + request)
    kind = _HEADER.unpack_from(answer)[1]
    if kind != SOCK_DIAG_BY_FAMILY:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number == 2:  # ENOENT: no such connection
            return None
        raise OSError(number, os.strerror(number))
    return struct.unpack_from("=I", answer, _USER_OFFSET)[0] if answer[_STATE_OFFSET] == ESTABLISHED else None


def _exchange(request: bytes) -> bytes:
    """Sends a query through a socket that stays open, so that it works when no file descriptors are free. Each fork
    has its own socket, because forks that share one would read each other's answers."""
    with _lock:
        own = os.getpid()
        try:
            kernel = _kernels.get(own)
            if kernel is None:
                _kernels.clear()
                kernel = _kernels[own] = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
                kernel.settimeout(_TIMEOUT_SECONDS)
            kernel.send(request)
            return kernel.recv(_MAX_ANSWER_BYTES)
        except OSError:
            _kernels.clear()
            raise


def _owner_from_table(client: Address, server: Address) -> int | None:
    ends = [
        (_in_table(client, mapped), _in_table(server, mapped))
        for mapped in ((False, True) if ":" not in client[0] else (False,))
    ]
    for table in TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                words = line.split()
                if (words[1], words[2]) in ends and int(words[3], 16) == ESTABLISHED:
                    return int(words[7])
    return None


def _in_table(end: Address, mapped: bool) -> str:
    """Returns an address in the format of the kernel's table: 32-bit words in native byte order. `mapped`: an IPv4
    address as IPv6."""
    family = socket.AF_INET6 if ":" in end[0] else socket.AF_INET
    packed = (_MAPPED if mapped else b"") + socket.inet_pton(family, end[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"
