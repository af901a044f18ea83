"""Probes a server continuously, with a new connection each time; counts refused connections and measures the time
without an answer."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field

EVERY_S = 0.02
TIMEOUT_S = 180.0
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@dataclass
class AvailabilityProbe:
    """A thread that requests `/healthz` of a port. `answered`: (start, seconds) of each request that got an answer;
    `refused`: times of refused connections; `broken`: times of connections that ended without an answer."""

    port: int
    answered: list[tuple[float, float]] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    broken: list[float] = field(default_factory=list)

    def __enter__(self) -> AvailabilityProbe:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._over.set()
        self._thread.join(TIMEOUT_S)

    def refused_since(self, moment: float) -> int:
        return sum(when > moment for when in self.refused)

    def back_after(self, moment: float) -> float | None:
        """Returns the seconds from `moment` to the first answer to a later request; None if there was none yet."""
        ends = [begun + seconds for begun, seconds in self.answered[-500:] if begun > moment]
        return min(ends) - moment if ends else None

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            begun = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
                    connection.sendall(REQUEST)
                    if connection.recv(64).startswith(b"HTTP/1.1 200"):
                        self.answered.append((begun, time.monotonic() - begun))
                    else:
                        self.broken.append(begun)
            except ConnectionRefusedError:
                self.refused.append(begun)
            except OSError:
                self.broken.append(begun)
