"""What one client may occupy: requests that are open, and the bytes of their bodies."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from openclaw.errors import ClientError

RETRY_SECONDS = 1.0


@dataclass(eq=False)
class Share:
    """What one client has open now, and may have at most; 0: no limit."""

    most_requests: int
    most_bytes: int
    requests: int = 0
    bytes: int = 0

    def check(self) -> None:
        """Raises ClientError (429) when it is too much."""
        for have, most, what in (
            (self.requests, self.most_requests, "requests are open (MAX_OPEN_REQUESTS)"),
            (self.bytes, self.most_bytes, "bytes of bodies are in open requests (MAX_OPEN_BYTES)"),
        ):
            if most and have > most:
                raise ClientError(
                    f"more than {most} {what} of this key or address; try again when some have ended",
                    code="too_many_open_requests", status=429, kind="rate_limit_error", retry_after=RETRY_SECONDS,
                )  # fmt: skip


class Shares:
    """The shares of all clients that have something open; an idle client costs nothing."""

    def __init__(self, most_requests: int, most_bytes: int) -> None:
        self._most = most_requests, most_bytes
        self._open: WeakValueDictionary[str, Share] = WeakValueDictionary()

    def of(self, client: str) -> Share:
        """The share of a client, kept while any of its requests holds it."""
        share = self._open.get(client)
        if share is None:
            share = self._open[client] = Share(*self._most)
        return share
