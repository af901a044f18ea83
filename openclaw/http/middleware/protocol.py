"""uvicorn's HTTP with limits on headers and on the time that they take."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

log = logging.getLogger(__name__)

LONGEST_HEAD = 64 << 10
"""Bytes."""
_BESIDE_A_HEADER = len(b": \r\n")
_TOO_LONG = b'{"error":{"message":"address and headers are longer than %d bytes",' % LONGEST_HEAD
_TOO_LONG += b'"type":"invalid_request_error","param":null,"code":"headers_too_large"}}'
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
)
_REFUSAL += b"content-length: %d\r\n\r\n%s" % (len(_TOO_LONG), _TOO_LONG)


class HttpProtocol(HttpToolsProtocol):
    """One connection, with a limit on what a client may send beside bodies: address, headers, trailers, chunk extensions.

    What is neither head nor body yet is counted, and a head when it is whole, as it may come in one piece; when it is too
    much, the client is let go. So is one whose head is not whole within `head_seconds` from when it connected or began
    it, for a connection that asks nothing takes one of the files that this process may have open.
    """

    head_seconds = 60.0
    _patience: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread, self._refused = 0, False
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(self.head_seconds, self._lose_patience)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._patience = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # it sends its next request before it has read this answer
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > LONGEST_HEAD and not self.transport.is_closing():
            self._let_go()

    def send_400_response(self, msg: str) -> None:
        """Ends a connection whose bytes cannot be parsed, or whose head `on_headers_complete` refused."""
        if self._refused:
            self._let_go()
        else:
            super().send_400_response(msg)

    def _let_go(self) -> None:
        log.info("a client that sent more than %d bytes of headers was let go", LONGEST_HEAD)
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_REFUSAL)
        self.transport.close()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        length = len(self.url) + sum(
            len(name) + len(value) + _BESIDE_A_HEADER for name, value in self.headers
        )
        if length > LONGEST_HEAD:
            self._refused = True
            raise ValueError(length)  # ends the parsing, and comes back as `send_400_response`
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()


def patient_for(seconds: float) -> type[HttpProtocol]:
    """That protocol with another `head_seconds`."""
    return type("HttpProtocol", (HttpProtocol,), {"head_seconds": seconds})
