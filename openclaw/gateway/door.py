"""The gateway's door, a supervisor that holds the port: how it gets its socket, starts the engine, and is replaced by a
new program.

The socket is the first of these that exists: the one that this process had before SIGHUP, one passed by systemd
(`LISTEN_FDS`), that of a worker whose door was killed, a new one.
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

from claw_base.hotswap.door import CANNOT_WORK, Door
from claw_base.hotswap.orphans import Lineage, Orphan, meeting_place, take_over
from claw_base.hotswap.post import Post
from claw_base.ports import listen
from claw_base.run_folder import records
from openclaw.engine.process import EngineProcess
from openclaw.errors import ClawError
from openclaw.formats.rendering import ModelFolder
from openclaw.settings import Settings

log = logging.getLogger(__name__)

FIRST_LISTEN_FD = 3
"""Of the sockets that systemd hands over, see sd_listen_fds(3)."""
STATE_VARIABLE = "OPENCLAW_DOOR"
SPARE_NEEDS_BYTES = 1 << 30
"""Available memory, from which on a spare waits if nothing else is asked for."""
RECORD = "gateway"

Work = Callable[[Settings, socket.socket, EngineProcess | None, Post], int]


@dataclass(frozen=True)
class Inherited:
    """Resources that a process passes to the program that replaces it: descriptors, pids, and the engine's port.

    keeper: the process that keeps the engine, or without an engine the socket."""

    pid: int
    listener: int
    workers: list[tuple[int, int]]
    engine_port: int | None
    keeper: int | None


ENDS = (signal.SIGTERM, signal.SIGINT)


class GatewayDoor:
    """Everything around the workers. Raises ConfigError for a model or a port that cannot be had."""

    def __init__(self, settings: Settings) -> None:
        ModelFolder.read(settings.model_folder)
        self.settings = settings
        self.earlier = _inherited(settings)
        self._pid = os.getpid()
        self.lineage = lineage_of(settings)
        self.orphans: list[Orphan] = []
        self.listener = self._listener()
        self.launched = launched_engine(settings, self.earlier.engine_port if self.earlier else None)
        self._tried: subprocess.Popen[bytes] | None = None

    def run(self, work: Work) -> int:
        """Until a signal; returns the exit status."""
        kept = self.earlier.keeper if self.earlier else None
        door = Door(
            self.listener,
            lambda post: work(self.settings, self.listener, self.launched, post),
            spare=self._has_room(),
            lineage=self.lineage,
            note=self._note,
            on_hangup=self._try,
            on_look=self._replace_when_tried,
            keeper=kept,
        )
        for pid, descriptor in self.earlier.workers if self.earlier else []:
            door.inherit(pid, socket.socket(fileno=descriptor))
        for orphan in self.orphans:
            door.adopt(orphan)
        if self.launched is not None:
            door.keep(self._keep_engine, kept)
        try:
            return door.run()
        finally:
            if self._tried is not None:
                self._tried.kill()

    def _listener(self) -> socket.socket:
        if self.earlier is not None:
            return socket.socket(fileno=self.earlier.listener)
        if self.settings.listen_fds and self.settings.listen_pid == os.getpid():
            return socket.socket(fileno=FIRST_LISTEN_FD)
        host, port = self.settings.host, self.settings.port
        if self.lineage is None:
            return listen(host, port)
        listener, self.orphans = take_over(self.lineage, lambda: listen(host, port))
        for orphan in self.orphans:
            log.warning("found a gateway whose door was killed (%s, pid %d)", orphan.part, orphan.pid)
        return listener

    def _has_room(self) -> bool:
        if self.settings.standby != "auto":
            return self.settings.standby == "on"
        return bool(psutil.virtual_memory().available > SPARE_NEEDS_BYTES)

    def _note(self, part: str, pid: int | None) -> None:
        """In the run folder, if this process is the gateway that is recorded there, or a worker without it."""
        if self.settings.run_dir:
            records.record_part(Path(self.settings.run_dir), RECORD, part, self._pid, pid)

    def _keep_engine(self) -> int:
        """The life of the process that keeps the engine running; returns its exit status."""
        try:
            asyncio.run(_keep(self.launched))
        except ClawError as error:
            print(f"error: {error}", file=sys.stderr)
            return CANNOT_WORK
        return 0

    def _try(self) -> None:
        """On SIGHUP: whether the program as it is on disk now can be imported. The door goes on meanwhile."""
        if self._tried is None:
            self._tried = subprocess.Popen([sys.executable, "-c", "import openclaw.server"])

    def _replace_when_tried(self, door: Door) -> None:
        """The program that was tried takes the place of this one, in this very process. Nothing happens if it cannot be
        imported."""
        status = None if self._tried is None else self._tried.poll()
        if status is None:
            return
        self._tried = None
        if status != 0:
            log.error("SIGHUP: the new program cannot be imported; this one goes on")
            return
        workers = [(worker.pid, worker.connection.fileno()) for worker in door.leave()]
        port = None if self.launched is None else self.launched.port
        state = Inherited(os.getpid(), self.listener.fileno(), workers, port, next(iter(door.beside), None))
        for descriptor in (state.listener, *(descriptor for _, descriptor in state.workers)):
            os.set_inheritable(descriptor, True)
        os.putenv(STATE_VARIABLE, orjson.dumps(state).decode())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the new program listens to it
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # what comes from here on reaches the new program
        if door.is_told_to_end:
            return
        log.info("SIGHUP: the gateway is replaced")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def lineage_of(settings: Settings) -> Lineage | None:
    """Returns the identity under which a new door finds this one's workers; None for a server without a supervisor:
    started by hand, its workers end with it."""
    if not (settings.run_dir and settings.engine_url):
        return None
    kind = hashlib.blake2b(repr(settings).encode(), digest_size=16).hexdigest()
    folder = meeting_place(Path(settings.run_dir) / "processes")
    return Lineage(f"{settings.host}:{settings.port}", kind, folder)


def launched_engine(settings: Settings, port: int | None = None) -> EngineProcess | None:
    """Returns the engine that the gateway launches; None if it uses engines that run already."""
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
    """Runs the engine until a signal. Raises ConfigError when it never became ready."""
    assert engine is not None
    running = asyncio.create_task(engine.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


def _inherited(settings: Settings) -> Inherited | None:
    """Returns the resources that this process kept before SIGHUP; None if there are none."""
    if settings.door_state is None:
        return None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    os.unsetenv(STATE_VARIABLE)
    found = orjson.loads(settings.door_state)
    found["workers"] = [(pid, descriptor) for pid, descriptor in found["workers"]]
    state = Inherited(**found)
    if state.pid != os.getpid():
        return None
    for descriptor in (state.listener, *(descriptor for _, descriptor in state.workers)):
        os.set_inheritable(descriptor, False)
    return state
