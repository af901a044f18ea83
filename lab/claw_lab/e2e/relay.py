"""A relay between OpenClaw and the gateway: forwards bytes, records the times of requests and answers, and rejects
requests if a test asks for it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw.errors import ClientError

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_COMPLETION = re.compile(rb'"id": ?"(chatcmpl-\w+)"')
_ASKS = tuple(f"POST /v1/{path}".encode() for path in ("chat/completions", "responses", "messages"))
KEPT_BYTES = 4096
RATE_LIMIT = ClientError(
    "Rate limit reached: try again in 1 second", None, "rate_limit_exceeded", 429, "rate_limit_error"
)
ENGINE_ERROR = ClientError("the engine did not answer", status=503, kind="server_error")


@dataclass
class Passage:
    """One request: its first bytes and those of its answer; times in seconds of time.monotonic()."""

    began: float
    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)
    ended: float = 0.0

    @property
    def is_chat(self) -> bool:
        """Returns whether the request asks for an answer of the model, in any dialect."""
        return self.asked.startswith(_ASKS)

    @property
    def status(self) -> int:
        """Returns the HTTP status of the answer; 0 if there is none yet."""
        match = _STATUS.match(self.answered)
        return int(match[1]) if match else 0

    @property
    def completion_id(self) -> str | None:
        match = _COMPLETION.search(self.answered)
        return match[1].decode() if match else None


class Relay:
    """A context manager that relays. `passages` grows with each request, in order of arrival. The next requests for an
    answer get the errors in `refusals`."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.passages: list[Passage] = []
        self.refusals: list[ClientError] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for connections
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to_port))
            except OSError:
                client.close()  # the client gets the same as without a relay: a closed port
                continue
            talk = _Connection(self.passages)
            for source, target, note in ((client, server, talk.asked), (server, client, talk.answered)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                refuses = self._refuses if source is client else _never
                threading.Thread(target=_pass_on, args=(source, target, note, refuses), daemon=True).start()

    def _refuses(self, client: socket.socket, data: bytes) -> bool:
        """Answers a request that begins with `data` if it must be rejected; returns whether it did."""
        if not self.refusals or not data.startswith(_ASKS):
            return False
        error = self.refusals.pop(0)
        while b"\r\n\r\n" not in data:
            data += client.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        left = int(length[1]) - len(body) if length else 0
        while left > 0:
            left -= len(client.recv(65536)) or left
        answer = json.dumps(error.body_for(head.split()[1].decode())).encode()
        lines = [
            f"HTTP/1.1 {error.status} refused",
            "content-type: application/json",
            "retry-after: 1",
            "connection: close",
        ]
        client.sendall("\r\n".join([*lines, f"content-length: {len(answer)}", "", ""]).encode() + answer)
        return True


def _never(client: socket.socket, data: bytes) -> bool:
    return False


class _Connection:
    """Separates the requests of one connection: client bytes after an answer begin a new one."""

    def __init__(self, passages: list[Passage]) -> None:
        self._passages = passages
        self._now: Passage | None = None

    def asked(self, data: bytes) -> None:
        if self._now is None or self._now.answered:
            self._now = Passage(time.monotonic())
            self._passages.append(self._now)
        _keep(self._now.asked, data)

    def answered(self, data: bytes) -> None:
        if self._now is not None:
            self._now.ended = time.monotonic()
            _keep(self._now.answered, data)


def _keep(kept: bytearray, data: bytes) -> None:
    kept += data[: max(0, KEPT_BYTES - len(kept))]


def _pass_on(
    source: socket.socket,
    target: socket.socket,
    note: Callable[[bytes], None],
    refuses: Callable[[socket.socket, bytes], bool],
) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if refuses(source, data):
                source.shutdown(socket.SHUT_RDWR)
                break
            note(data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
