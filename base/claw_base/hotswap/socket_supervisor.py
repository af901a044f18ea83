"""The process that holds a listening socket and manages its workers: serving, spare, and finishing ones."""

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

from claw_base.hotswap import children, takeover
from claw_base.hotswap.takeover import ReclaimedWorker, TakeoverId
from claw_base.hotswap.worker_channel import (
    BUILT,
    FINISH,
    MESSAGE,
    REFUSED,
    SERVE,
    SERVING,
    STEP_IN,
    Note,
    WorkerChannel,
)

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
FIND_SECONDS = 30.0
"""Seconds for which a new supervisor looks for workers that were still starting when their supervisor was killed."""
FIND_EVERY_SECONDS = 0.05
CANNOT_WORK = 2
"""Exit status for an invalid configuration."""


@dataclass
class Worker:
    """A worker of this supervisor. `state`: building, spare, serving, or old (it finishes its answers, and may serve
    again if needed)."""

    pid: int
    connection: socket.socket
    state: str = "building"


class SocketSupervisor:
    """Manages the workers that serve one listening socket.

    Args:
        listener: bound and listening.
        work: main function of a worker, called in the fork; returns its exit status.
        spare: whether to keep a second worker ready while the first serves.
        takeover_id: lets a new supervisor find the workers of a killed one; None: they end with their supervisor.
        note: called with the part ("serving", "spare") and the pid that has it; also by a worker without a
            supervisor.
        on_hangup: called on SIGHUP.
        on_look: called at each look, once a second at least; may replace the program (`leave`), whose new
            supervisor gets the workers by `inherit`, and the pid of the process that holds the socket by `keeper`.
    """

    def __init__(
        self,
        listener: socket.socket,
        work: Callable[[WorkerChannel], int],
        *,
        spare: bool = True,
        takeover_id: TakeoverId | None = None,
        note: Note = lambda part, pid: None,
        on_hangup: Callable[[], None] = lambda: None,
        on_look: Callable[[SocketSupervisor], None] = lambda supervisor: None,
        keeper: int | None = None,
    ) -> None:
        self.listener = listener
        self.workers: list[Worker] = []
        self.helpers: dict[int, tuple[Callable[[], int], str | None]] = {}
        self._work = work
        self._spare = spare
        self._takeover_id = takeover_id
        self._note = note
        self._on_hangup = on_hangup
        self._on_look = on_look
        self._keeper = keeper
        self._signals: list[int] = []
        self._served = False
        self._failures = 0
        self._next_start = 0.0
        self._look_until = 0.0

    def inherit(self, pid: int, connection: socket.socket) -> None:
        """Adds a worker of an earlier supervisor. It continues as serving or spare until a worker of this supervisor
        serves; then it finishes its answers."""
        self.workers.append(Worker(pid, connection, "old"))
        self._served = True

    def adopt(self, worker: ReclaimedWorker) -> None:
        """Adds a worker whose supervisor was killed. It keeps its role if it has the same settings and no other
        worker has the role; otherwise as `inherit`."""
        assert self._takeover_id is not None
        taken = self._in_state("serving") if worker.part == "serving" else self._waiting()
        if taken or worker.kind != self._takeover_id.kind:
            self.inherit(worker.pid, worker.connection)
            if self._in_state("serving"):
                send(self.workers[-1], FINISH)
            return
        self.workers.append(Worker(worker.pid, worker.connection, worker.part))
        self._served = True
        self._note(worker.part, worker.pid)
        self._promote()

    @property
    def has_stop_signal(self) -> bool:
        """Returns whether a stop signal has arrived and is not handled yet."""
        return signal.SIGTERM in self._signals or signal.SIGINT in self._signals

    def leave(self) -> list[Worker]:
        """Returns the workers for the program that replaces this one. Until that program has started, the spare
        serves without an order as soon as the serving worker exits."""
        for worker in self._waiting():
            send(worker, STEP_IN)
        return self.workers

    def keep_running(self, run: Callable[[], int], pid: int | None = None, part: str | None = None) -> None:
        """Runs a helper in its own process and restarts it whenever it exits. `pid`: of a helper that is running
        already; `part`: name of its record. Its exit status 2 ends the supervisor."""
        pid = self._fork(run) if pid is None else pid
        self.helpers[pid] = run, part
        if part is not None:
            self._note(part, pid)

    def run(self) -> int:
        """Runs until a signal arrives. Returns the exit status: not 0 if no worker can ever serve."""
        gc.freeze()  # a garbage collection in a fork would copy every page it touches
        takeover_id, listener = self._takeover_id, self.listener
        if takeover_id is not None:
            if self._keeper is not None:  # the earlier program's keeper: its socket folder may differ
                children.stop([self._keeper])
                children.exit_status(self._keeper)
            self.keep_running(lambda: takeover.hold_socket(takeover_id, listener), part=takeover.KEEPER)
            self._look_until = time.monotonic() + FIND_SECONDS
        with children.signals(self._signals) as wake, selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            try:
                while (status := self._look(selector)) is None:
                    pass
                return status
            finally:
                children.stop([worker.pid for worker in self.workers])
                if self._takeover_id is not None:
                    with contextlib.suppress(OSError):
                        self.listener.shutdown(socket.SHUT_RDWR)
                children.stop(list(self.helpers))
                if self._takeover_id is not None:
                    takeover.forget(self._takeover_id)

    def _look(self, selector: selectors.BaseSelector) -> int | None:
        """Waits at most a second for messages and signals, and handles them. Returns the exit status when it is time
        to exit, else None."""
        finding = self._takeover_id is not None and time.monotonic() < self._look_until
        for reclaimed in takeover.find(self._takeover_id) if self._takeover_id and finding else []:
            reclaimed.listener.close()
            self.adopt(reclaimed)
        self._start_missing()
        for worker in self.workers:
            if worker.connection not in selector.get_map():
                selector.register(worker.connection, selectors.EVENT_READ, worker)
        pause = max(0.0, min(1.0, self._next_start - time.monotonic())) or 1.0
        for key, _ in selector.select(min(pause, FIND_EVERY_SECONDS) if finding else pause):
            message = received(key.fileobj)
            if key.data is None:
                continue
            if not message:
                selector.unregister(key.fileobj)
            status = self._on_message(key.data, message)
            if status is not None:
                return status
        status = self._on_signals()
        if status is None:
            self._on_look(self)
        return status

    def _on_message(self, worker: Worker, message: bytes) -> int | None:
        if message == BUILT and worker.state == "building":
            worker.state, self._failures = "spare", 0
            self._promote()
        elif message == SERVING and worker.state == "serving":
            self._served = True
            for old in self._in_state("old"):
                send(old, FINISH)
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
        if worker.state in ("building", "spare"):
            self._note("spare", None)
        self._promote()
        return None

    def _on_signals(self) -> int | None:
        while self._signals:
            number = self._signals.pop(0)
            if number in (signal.SIGTERM, signal.SIGINT):
                return 0
            if number == signal.SIGHUP:
                self._on_hangup()
        for pid, (run, part) in list(self.helpers.items()):
            if children.has_ended(pid):
                del self.helpers[pid]
                if children.exit_status(pid) == CANNOT_WORK:
                    return CANNOT_WORK
                self.keep_running(run, part=part)
        return None

    def _promote(self) -> None:
        """Makes a ready spare serve if no worker serves."""
        built = self._in_state("spare")
        if built and not self._in_state("serving"):
            built[0].state = "serving"
            send(built[0], SERVE)
            self._note("serving", built[0].pid)
            self._note("spare", None)

    def _start_missing(self) -> None:
        serving = self._in_state("serving")
        needs_worker = self._spare and self._served if serving else True
        if not needs_worker or self._waiting() or time.monotonic() < self._next_start:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ahead = next((worker.pid for worker in serving + self._in_state("old")), None)
        channel = WorkerChannel(
            theirs, self._takeover_id, first=not self._served, ahead=ahead, note=self._note
        )

        def work() -> int:
            if serving:
                channel.delay_spare()
            return self._work(channel)

        self.workers.append(Worker(self._fork(work, ours), ours))
        self._note("spare", self.workers[-1].pid)
        theirs.close()

    def _waiting(self) -> list[Worker]:
        return self._in_state("building") + self._in_state("spare")

    def _in_state(self, state: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.state == state]

    def _fork(self, run: Callable[[], int], *ours: socket.socket) -> int:
        def alone() -> int:
            for connection in (*ours, *(worker.connection for worker in self.workers)):
                connection.close()
            return run()

        return children.fork(alone, ends_with_us=self._takeover_id is None)


def received(connection: object) -> bytes:
    """Returns the available data; empty if the other side has closed."""
    assert isinstance(connection, socket.socket)
    try:
        return connection.recv(MESSAGE)
    except OSError:
        return b""


def send(worker: Worker, message: bytes) -> None:
    """Sends a message to a worker. Ignores a worker that has exited: its closed connection is read next."""
    with contextlib.suppress(OSError):
        worker.connection.send(message)
