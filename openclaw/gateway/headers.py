"""Headers that the gateway sets itself: who a request is from. What a client sends under these names is thrown away."""

from __future__ import annotations

from collections.abc import Mapping

PERSON_HEADER = "openclaw-person"
PEER_HEADER = "openclaw-peer"
"""Set here: the name of the client's key, its address. What a client sends under these names is thrown away."""


def as_utf8(value: str) -> str:
    """What a client wrote in a header: mostly UTF-8, of which ASGI makes Latin-1."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def person_of(headers: Mapping[str, str]) -> str | None:
    """The name of the request's key, if it has one."""
    name = headers.get(PERSON_HEADER)
    return None if name is None else as_utf8(name)
