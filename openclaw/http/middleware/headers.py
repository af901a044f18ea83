"""Headers that count only once, and those that are set here."""

from __future__ import annotations

from starlette.types import Scope

from openclaw.errors import ClientError
from openclaw.gateway.caller import PEER_HEADER, PERSON_HEADER

ONCE = frozenset({b"host", b"origin", b"authorization", b"x-api-key", b"content-length"})
"""Who reads the first and who reads the last of two of these, such as a proxy before this server, would disagree."""
_OWN = (PERSON_HEADER.encode(), PEER_HEADER.encode())


def check_once(scope: Scope) -> None:
    """Raises ClientError (400) for a header that is there twice and may not be."""
    names = [name for name, _ in scope["headers"] if name in ONCE]
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1).decode()
        raise ClientError(f"the request has more than one {twice} header", code="invalid_header")


def with_sender(scope: Scope, name: str | None) -> list[tuple[bytes, bytes]]:
    """The headers with the client's address and the name of its key; what it sent under these names is left out."""
    client = scope.get("client")
    kept = [(key, value) for key, value in scope["headers"] if key not in _OWN]
    kept.append((PEER_HEADER.encode(), str(client[0] if client else "").encode()))
    return [*kept, (PERSON_HEADER.encode(), name.encode())] if name else kept
