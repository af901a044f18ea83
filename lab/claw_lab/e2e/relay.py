"""A relay between OpenClaw and the gateway: passes bytes on, notes when requests came and when they were answered."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_COMPLETION = re.compile(rb'"id": ?"(chatcmpl-\w+)"')
_ASKS = tuple(f"POST /v1/{path}".encode() for path in ("chat/completions", "responses", "messages"))
KEPT_BYTES = 4096


@dataclass
class Passage:
    """One request: its first bytes and those of its answer; times in seconds of time.monotonic()."""

    began: float
    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)
    ended: float = 0.0

    @property
    def is_chat(self) -> bool:
        """Whether an answer of the model was asked for, in any dialect."""
        return self.asked.startswith(_ASKS)

    @property
    def status(self) -> int:
        """0 while there is no answer."""
        match = _STATUS.match(self.answered)
        return int(match[1]) if match else 0

    @property
    def completion_id(self) -> str | None:
        match = _COMPLETION.search(self.answered)
        return match[1].decode() if match else None


class Relay:
    """Use it as a context manager. `passages` grows with each request, in the order in which they came."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.passages: list[Passage] = []

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
                client.close()  # the client sees the same as without a relay: a closed port
                continue
            talk = _Connection(self.passages)
            for source, target, note in ((client, server, talk.asked), (server, client, talk.answered)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_pass_on, args=(source, target, note), daemon=True).start()


class _Connection:
    """Separates the requests of one connection: bytes of the client after an answer begin a new one."""

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


def _pass_on(source: socket.socket, target: socket.socket, note: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            note(data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
