"""The gateway's socket supervisor: opens the socket, starts workers and engine, and replaces the program on SIGHUP.

The supervisor uses the first of these sockets that exists: that of the program before SIGHUP, one passed by systemd
(`LISTEN_FDS`), that of a worker whose supervisor was killed, or a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from claw_base.hotswap.socket_supervisor import CANNOT_WORK, SocketSupervisor
from claw_base.hotswap.takeover import ReclaimedWorker, TakeoverId, socket_folder, take_over
from claw_base.hotswap.worker_channel import WorkerChannel
from claw_base.ports import listen
from claw_base.run_folder import records
from openclaw.engine.process import EngineProcess
from openclaw.errors import ClawError
from openclaw.formats.rendering import ModelFolder
from openclaw.settings import Settings

log = logging.getLogger(__name__)

FIRST_LISTEN_FD = 3
"""Descriptor of the first socket that systemd passes, see sd_listen_fds(3)."""
STATE_VARIABLE = "OPENCLAW_DOOR"
"""Environment variable with the state for the new program. The name must not change: an older program may set it."""
SPARE_NEEDS_BYTES = 1 << 30
"""Available memory from which a spare is kept by default."""
RECORD = "gateway"

Work = Callable[[Settings, socket.socket, EngineProcess | None, WorkerChannel], int]


@dataclass(frozen=True)
class Inherited:
    """State that a process passes to the program that replaces it on SIGHUP.

    Attributes:
        pid: id of the process, which does not change.
        listener: descriptor of the listening socket.
        workers: pid and descriptor of the connection to each worker.
        engine_port: port of the engine; None if the gateway runs none.
        keeper: pid of the process that keeps the engine running, or without an engine the socket open.
    """

    pid: int
    listener: int
    workers: list[tuple[int, int]]
    engine_port: int | None
    keeper: int | None


ENDS = (signal.SIGTERM, signal.SIGINT)


class GatewaySupervisor:
    """Keeps the gateway's port open and manages its workers. Raises ConfigError if the model or the port cannot be
    used."""

    def __init__(self, settings: Settings) -> None:
        ModelFolder.read(settings.model_folder)
        self.settings = settings
        self.earlier = _inherited(settings)
        self._pid = os.getpid()
        self.takeover_id = takeover_id_of(settings)
        self.reclaimed: list[ReclaimedWorker] = []
        self.listener = self._listener()
        self.launched = launched_engine(settings, self.earlier.engine_port if self.earlier else None)
        self._tried: subprocess.Popen[bytes] | None = None

    def run(self, work: Work) -> int:
        """Runs until a signal. Returns the exit status.

        Args:
            work: main function of a worker process.
        """
        keeper = self.earlier.keeper if self.earlier else None
        supervisor = SocketSupervisor(
            self.listener,
            lambda channel: work(self.settings, self.listener, self.launched, channel),
            spare=self._has_room(),
            takeover_id=self.takeover_id,
            note=self._note,
            on_hangup=self._try,
            on_look=self._replace_when_tried,
            keeper=keeper,
        )
        for pid, descriptor in self.earlier.workers if self.earlier else []:
            supervisor.inherit(pid, socket.socket(fileno=descriptor))
        for worker in self.reclaimed:
            supervisor.adopt(worker)
        if self.launched is not None:
            supervisor.keep_running(self._keep_engine, keeper)
        try:
            return supervisor.run()
        finally:
            if self._tried is not None:
                self._tried.kill()

    def _listener(self) -> socket.socket:
        if self.earlier is not None:
            return socket.socket(fileno=self.earlier.listener)
        if self.settings.listen_fds and self.settings.listen_pid == os.getpid():
            return socket.socket(fileno=FIRST_LISTEN_FD)
        host, port = self.settings.host, self.settings.port
        if self.takeover_id is None:
            return listen(host, port)
        listener, self.reclaimed = take_over(self.takeover_id, lambda: listen(host, port))
        for worker in self.reclaimed:
            log.warning(
                "took over a gateway worker whose supervisor was killed (%s, pid %d)", worker.part, worker.pid
            )
        return listener

    def _has_room(self) -> bool:
        if self.settings.standby != "auto":
            return self.settings.standby == "on"
        return bool(psutil.virtual_memory().available > SPARE_NEEDS_BYTES)

    def _note(self, part: str, pid: int | None) -> None:
        """Records the role of a worker in the run folder, if the folder's record is of this gateway."""
        if self.settings.run_dir:
            records.record_part(Path(self.settings.run_dir), RECORD, part, self._pid, pid)

    def _keep_engine(self) -> int:
        """Keeps the engine running; the main function of the keeper process. Returns the exit status."""
        try:
            asyncio.run(_keep(self.launched))
        except ClawError as error:
            print(f"error: {error}", file=sys.stderr)
            return CANNOT_WORK
        return 0

    def _try(self) -> None:
        """Starts a process that tries to import the program on disk. Called on SIGHUP."""
        if self._tried is None:
            self._tried = subprocess.Popen([sys.executable, "-c", "import openclaw.server"])

    def _replace_when_tried(self, supervisor: SocketSupervisor) -> None:
        """Replaces the program of this process with the one on disk, once the trial process has imported it."""
        status = None if self._tried is None else self._tried.poll()
        if status is None:
            return
        self._tried = None
        if status != 0:
            log.error("SIGHUP: the new program cannot be imported; the old program continues")
            return
        workers = [(worker.pid, worker.connection.fileno()) for worker in supervisor.leave()]
        port = None if self.launched is None else self.launched.port
        state = Inherited(
            os.getpid(), self.listener.fileno(), workers, port, next(iter(supervisor.helpers), None)
        )
        for descriptor in (state.listener, *(descriptor for _, descriptor in state.workers)):
            os.set_inheritable(descriptor, True)
        os.putenv(STATE_VARIABLE, orjson.dumps(state).decode())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # ignored until the new program handles it
        # signals from here on are delivered to the new program
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        if supervisor.has_stop_signal:
            return
        log.info("SIGHUP: replacing the gateway's program")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def takeover_id_of(settings: Settings) -> TakeoverId | None:
    """Returns the id by which a new supervisor finds the workers of a killed one. Returns None for a server that is not
    part of a run: its workers end with their supervisor."""
    if not (settings.run_dir and settings.engine_url):
        return None
    settings_digest = hashlib.blake2b(repr(settings).encode(), digest_size=16).hexdigest()
    folder = socket_folder(Path(settings.run_dir) / "processes")
    return TakeoverId(f"{settings.host}:{settings.port}", settings_digest, folder)


def launched_engine(settings: Settings, port: int | None = None) -> EngineProcess | None:
    """Returns the engine that the gateway runs; None if `--engine-url` names existing engines."""
    if settings.engine_url:
        return None
    return EngineProcess.of(
        settings.backend or "embedded",
        settings.model_folder,
        settings.context_length,
        settings.standby,
        port,
        settings.max_loaded_adapters,
    )


async def _keep(engine: EngineProcess | None) -> None:
    """Runs the engine until SIGTERM. Raises ConfigError if it did not become ready."""
    assert engine is not None
    running = asyncio.create_task(engine.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


def _inherited(settings: Settings) -> Inherited | None:
    """Returns the state of the program before SIGHUP; None if this program was started otherwise."""
    if settings.inherited_state is None:
        return None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    os.unsetenv(STATE_VARIABLE)
    fields = orjson.loads(settings.inherited_state)
    fields["workers"] = [(pid, descriptor) for pid, descriptor in fields["workers"]]
    state = Inherited(**fields)
    if state.pid != os.getpid():
        return None
    for descriptor in (state.listener, *(descriptor for _, descriptor in state.workers)):
        os.set_inheritable(descriptor, False)
    return state
