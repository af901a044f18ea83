"""What a database failure means: what happened, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from openclaw.errors import StoreError, StoreUnavailable

BUSY_TIMEOUT_SECONDS = 30.0
"""How long a write waits for another one's lock before it fails."""

_BUSY = "another process held the write lock for more than {seconds:g} s: look for one that hangs; try again"
_FULL = "nothing of this write was stored: free space on that disk; serving may go on"
_READ_ONLY = "this user may not write there: give the buffer a writable folder or file"
_DOWN = "check that the server runs and that host, port, user and database of the URL are right"
_ADVICE: tuple[tuple[str, str], ...] = (
    ("database is locked", _BUSY),
    ("lock timeout", _BUSY),
    ("deadlock detected", "two writers waited for each other and this one was undone: try again"),
    ("disk is full", _FULL),
    ("No space left on device", _FULL),
    ("readonly database", _READ_ONLY),
    ("read-only", _READ_ONLY),
    ("unable to open database file", "the folder of the buffer is missing, or this user may not use it"),
    ("disk I/O error", "the disk failed, or the file was removed: look at the system's log"),
    ("malformed", "the file is damaged: restore a copy, or export what `python -m openclaw.store` can read"),
    ("not a database", "choose another --rl-buffer-dir"),
    ("connection is bad", _DOWN),
    ("connection failed", _DOWN),
    ("server closed the connection", _DOWN),
    ("terminating connection", _DOWN),
)
"""Part of a driver's message -> what to do."""


def shown(location: str) -> str:
    """A folder or URL as it may be printed: without its password."""
    return make_url(location).render_as_string(hide_password=True) if "://" in location else location


@contextmanager
def as_store_error(url: str) -> Iterator[None]:
    """Database errors leave as StoreUnavailable: the database (no password), the driver's words, what to do."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip()
        raise StoreUnavailable(f"rollout store {shown(url)}: {cause}{_advice(cause)}") from error
    except UnicodeEncodeError as error:
        raise StoreError(f"a text that is no valid Unicode cannot be stored: {error.reason}") from error


def _advice(cause: str) -> str:
    for words, advice in _ADVICE:
        if words in cause:
            return "; " + advice.format(seconds=BUSY_TIMEOUT_SECONDS)
    return ""
