"""Who serves, who waits, who finishes."""

from __future__ import annotations

import contextlib
import gc
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from openclaw.common.door import children
from openclaw.common.door.post import BUILT, FINISH, MESSAGE, REFUSED, SERVE, SERVING, Post

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
SPARE_DELAY_SECONDS = 0.5
"""Until the next spare is built: clients that waited for the one before come first."""
CANNOT_WORK = 2
"""Exit status of a configuration that cannot work."""


class Note(Protocol):
    """Told who plays a part ("serving", "spare"); pid None: nobody does."""

    def __call__(self, part: str, pid: int | None) -> None: ...


@dataclass
class Worker:
    """What the door knows of one. `state`: building, spare, serving, or old (it finishes its answers)."""

    pid: int
    connection: socket.socket
    state: str = "building"


class Door:
    """Workers in front of one listening socket.

    Args:
        listener: bound and listening.
        work: the life of a worker, in the fork; returns its exit status.
        spare: whether one that is built waits behind the one that serves.
        watched_as: under which name a new door finds the workers of a killed one; None: they end with their door.
        note: told who serves and who waits.
        on_hangup: called on SIGHUP; may replace the program, whose new door then gets the workers by `inherit`.
    """

    def __init__(
        self,
        listener: socket.socket,
        work: Callable[[Post], int],
        *,
        spare: bool = True,
        watched_as: str | None = None,
        note: Note = lambda part, pid: None,
        on_hangup: Callable[[Door], None] | None = None,
    ) -> None:
        self.listener = listener
        self.workers: list[Worker] = []
        self.beside: dict[int, Callable[[], int]] = {}
        self._work = work
        self._spare = spare
        self._watched_as = watched_as
        self._note = note
        self._on_hangup = on_hangup
        self._signals: list[int] = []
        self._served = False
        self._failures = 0
        self._next_start = 0.0

    def inherit(self, pid: int, connection: socket.socket) -> None:
        """A worker of an earlier door: it serves until one of this door does, then finishes its answers."""
        self.workers.append(Worker(pid, connection, "old"))
        self._served = True

    def keep(self, run: Callable[[], int], pid: int | None = None) -> None:
        """Runs something beside the workers in a process of its own, again whenever it ends; `pid`: it runs already.
        Its exit status 2 ends the door."""
        self.beside[self._fork(run) if pid is None else pid] = run

    def run(self) -> int:
        """Until a signal ends it. Returns an exit status: not 0 when no worker can ever serve."""
        gc.freeze()  # a collection in a fork would copy every page that it looks at
        with children.signals(self._signals) as wake, selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            try:
                while (status := self._look(selector)) is None:
                    pass
                return status
            finally:
                children.stop([worker.pid for worker in self.workers])
                children.stop(list(self.beside))

    def _look(self, selector: selectors.BaseSelector) -> int | None:
        """Waits for what comes next, and acts on it."""
        self._start_missing()
        for worker in self.workers:
            if worker.connection not in selector.get_map():
                selector.register(worker.connection, selectors.EVENT_READ, worker)
        for key, _ in selector.select(max(0.0, min(1.0, self._next_start - time.monotonic())) or 1.0):
            message = _received(key.fileobj)
            if key.data is None:
                continue
            if not message:
                selector.unregister(key.fileobj)
            status = self._on_message(key.data, message)
            if status is not None:
                return status
        return self._on_signals()

    def _on_message(self, worker: Worker, message: bytes) -> int | None:
        if message == BUILT:
            worker.state, self._failures = "spare", 0
            self._note("spare", worker.pid)
            self._promote()
        elif message == SERVING:
            self._served = True
            for old in self._in_state("old"):
                _tell(old, FINISH)
        elif message.startswith(REFUSED):
            print(message.removeprefix(REFUSED).decode(errors="replace"), file=sys.stderr, flush=True)
        elif not message:
            return self._on_end(worker)
        return None

    def _on_end(self, worker: Worker) -> int | None:
        self.workers.remove(worker)
        worker.connection.close()
        status = children.exit_status(worker.pid)
        if worker.state == "building":
            if not self._served and status > 0:
                return status
            self._failures += 1
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (self._failures - 1))
            self._next_start = time.monotonic() + pause
        if worker.state == "spare":
            self._note("spare", None)
        self._promote()
        return None

    def _on_signals(self) -> int | None:
        while self._signals:
            number = self._signals.pop(0)
            if number in (signal.SIGTERM, signal.SIGINT):
                return 0
            if number == signal.SIGHUP and self._on_hangup is not None:
                self._on_hangup(self)
        for pid, run in list(self.beside.items()):
            if children.has_ended(pid):
                del self.beside[pid]
                if children.exit_status(pid) == CANNOT_WORK:
                    return CANNOT_WORK
                self.keep(run)
        return None

    def _promote(self) -> None:
        """If nobody serves, one that is built does."""
        built = self._in_state("spare")
        if built and not self._in_state("serving"):
            built[0].state = "serving"
            _tell(built[0], SERVE)
            self._note("serving", built[0].pid)
            self._note("spare", None)
            self._next_start = time.monotonic() + SPARE_DELAY_SECONDS

    def _start_missing(self) -> None:
        wanted = self._spare and self._served if self._in_state("serving") else True
        coming = self._in_state("building") + self._in_state("spare")
        if not wanted or coming or time.monotonic() < self._next_start:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        serving = bool(self._in_state("serving"))
        post = Post(theirs, self._watched_as, first=not self._served, spare=serving)
        self.workers.append(Worker(self._fork(lambda: self._work(post), ours), ours))
        theirs.close()

    def _in_state(self, state: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.state == state]

    def _fork(self, run: Callable[[], int], *ours: socket.socket) -> int:
        def alone() -> int:
            for connection in (*ours, *(worker.connection for worker in self.workers)):
                connection.close()
            return run()

        return children.fork(alone, ends_with_us=self._watched_as is None)


def _received(connection: object) -> bytes:
    """What there is to read; empty when the other side is gone."""
    assert isinstance(connection, socket.socket)
    try:
        return connection.recv(MESSAGE)
    except OSError:
        return b""


def _tell(worker: Worker, message: bytes) -> None:
    with contextlib.suppress(OSError):  # it is gone, which is read next
        worker.connection.send(message)
