"""uvicorn's HTTP, with a limit on what a client may send beside bodies: address, headers, trailers, chunk extensions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import Transport

log = logging.getLogger(__name__)

LONGEST_HEAD = 64 << 10
"""Bytes."""
_TOO_LONG = b'{"error":{"message":"address and headers are longer than %d bytes",' % LONGEST_HEAD
_TOO_LONG += b'"type":"invalid_request_error","param":null,"code":"headers_too_large"}}'
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
)
_REFUSAL += b"content-length: %d\r\n\r\n%s" % (len(_TOO_LONG), _TOO_LONG)


class HttpProtocol(HttpToolsProtocol):
    """One connection. What is neither head nor body yet is counted; when it is too much, the client is let go."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread = 0

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > LONGEST_HEAD and not self.transport.is_closing():
            log.info("a client that sent more than %d bytes of headers was let go", LONGEST_HEAD)
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_REFUSAL)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()
