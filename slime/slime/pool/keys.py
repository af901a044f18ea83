"""The key of a pool without a configured one: created at each start, stored in a private file named after the port."""

from __future__ import annotations

import ipaddress
import os
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from claw_base.errors import ConfigError
from claw_base.files import private_folder

FOLDER = Path("/tmp")
"""The same for pool and client, regardless of TMPDIR."""


def new_key() -> str:
    return secrets.token_urlsafe(32)


def key_file_of(port: int) -> Path:
    return FOLDER / f"slime-{os.getuid()}-pools" / f"{port}.key"


def store_key(key: str, port: int) -> Path:
    """Stores the key and returns its file. Raises ConfigError if its folder is another user's; OSError."""
    path = key_file_of(port)
    private_folder(path.parent)
    new = path.with_name(f".{port}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(key)
    new.replace(path)
    return path


def key_of(url: str) -> str | None:
    """Returns the key of a pool of this user on this machine; None if there is none, or if the pool is on another
    machine."""
    address = urlsplit(url)
    if address.hostname is None or address.port is None or not is_loopback(address.hostname):
        return None
    path = key_file_of(address.port)
    try:
        if path.parent.lstat().st_uid != os.getuid():
            return None
        return path.read_text().strip() or None
    except OSError:
        return None


def check_address(name: str, url: str) -> None:
    """Raises ConfigError for an invalid pool address. `name`: the flag, for the message."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"{name} {url} is not a URL: write it with its scheme, such as http://127.0.0.1:18080"
        )


def bearer(key: str | None) -> dict[str, str]:
    """Returns the header with a key."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_here(host: str) -> bool:
    """Returns whether a loopback server accepts this host name: an address, `localhost`, or a name without a dot."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and "." not in host.rstrip(".")
    return True
