"""`admin.key` in a run folder: the administrator's key, created by a gateway that requires client keys and has none
configured. Programs of the same user read it, so that it does not have to be copied."""

from __future__ import annotations

import ipaddress
import os
import secrets
import stat
from pathlib import Path
from urllib.parse import urlsplit

from claw_base import peer
from claw_base.errors import ConfigError
from claw_base.run_folder.records import read_records

FILE = "admin.key"


def create_key(folder: Path) -> tuple[str, bool]:
    """Returns the key of a folder, and whether it was newly created. Raises ConfigError if the path is not a regular
    file of this user."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, new_key = folder / FILE, secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = read_key(folder)
        if key is None:
            raise ConfigError(f"{path} is empty, a link, or another user's: remove it") from None
        return key, False
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(new_key + "\n")
    return new_key, True


def read_key(folder: Path) -> str | None:
    """Returns the key of a folder; None if there is none, or if it is a link or another user's file."""
    try:
        with open(
            os.open(folder / FILE, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), encoding="ascii"
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
                return None
            return file.read().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def known_key(url: str, folders: list[Path]) -> str | None:
    """Returns the key of the run among `folders` whose gateway listens at this local address. None if another user's
    program answers there, for example at `[::1]` while the gateway listens on 127.0.0.1."""
    for folder in folders:
        own = [
            str(one.url) for one in read_records(folder) if one.role == "gateway" and one.url and one.alive()
        ]
        if any(_is_same(one, url) for one in own) and (key := read_key(folder)):
            return key if peer.serves_own_user(url) else None
    return None


def _is_same(one: str, other: str) -> bool:
    ports = local_port(one), local_port(other)
    return urlsplit(one).netloc == urlsplit(other).netloc or (None not in ports and ports[0] == ports[1])


def local_port(url: str) -> int | None:
    """Returns the port of a loopback address; None for any other address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None
    return port if here else None
