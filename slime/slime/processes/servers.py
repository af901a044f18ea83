"""The plain server processes of a run: started, adopted and stopped. It does not depend on Ray.

Engine, gateway and judges must outlive driver, raylet and trainer, so they are separate processes, and all
information about them is in the run folder (`claw_base.run_folder.records`). A new manager adopts existing ones.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from claw_base.ports import bind_error
from claw_base.run_folder import records
from claw_base.run_folder.records import ProcessRecord
from slime.errors import ConfigError, EngineError
from slime.processes import control
from slime.processes.known_failures import with_advice
from slime.utils.certificates import certificates
from slime.utils.memory_kills import MemoryKills

logger = logging.getLogger(__name__)

LIVENESS_INTERVAL = 0.3  # seconds between checks of the process table
HEALTH_INTERVAL = 5.0  # seconds between health requests
SETTLED_SECONDS = 2.0  # a server without URL counts as started after this time
LONGEST_BACKOFF = 10.0  # seconds
START_ATTEMPTS = 3
OWN_ROLES = frozenset({"driver", "trainer", "buffer"})  # roles in the driver's Ray, which end with it
# below the range for outgoing connections, so that they are free again at a restart
CHOSEN_PORTS = range(21000, 31000)


@dataclass(frozen=True)
class ServerSpec:
    """Command and health check of one server. Times in seconds; `url` None: it has no HTTP routes.

    `group`: of equal servers whose number may change while they run (`slime.processes.scaling`); None: it stands alone.
    `welcome`: shown after its address when it is ready. `machine`: the address of the machine that it runs on, "" for the
    driver's.
    """

    name: str
    role: str
    command: list[str]
    url: str | None = None
    health_path: str = "/health"
    env: dict[str, str] = field(default_factory=dict)
    start_timeout: float = 60.0
    health_timeout: float = 5.0
    group: str | None = None
    welcome: str = ""
    machine: str = ""


@dataclass
class Watched:
    """The state of one server between two checks. Moments are seconds on the monotonic clock; `since`:
    when this process of it was started or adopted."""

    spec: ServerSpec
    record: ProcessRecord
    since: float = field(default_factory=time.monotonic)
    ready: bool = False
    asked_at: float = 0.0
    log_start: int = 0
    unhealthy: int = 0
    failed_starts: int = 0
    restarts: int = 0
    restart_at: float | None = None


def restart_delay(failed_starts: int) -> float:
    """Returns the seconds until the next start: none after a death in service, else 0.5, 1, 2, ...
    `LONGEST_BACKOFF`."""
    return 0.0 if failed_starts == 0 else min(LONGEST_BACKOFF, 0.5 * 2.0 ** (failed_starts - 1))


def is_ready(watched: Watched) -> bool:
    """Returns whether the server has started and is healthy."""
    if watched.spec.url is None and time.monotonic() - watched.since < SETTLED_SECONDS:
        return False
    return watched.record.alive() and healthy(watched.spec)


def healthy(spec: ServerSpec) -> bool:
    """Returns whether the health path returns 200 in time. A server without a URL is healthy while it lives."""
    if spec.url is None:
        return True
    try:
        answer = httpx.get(
            spec.url + spec.health_path, timeout=spec.health_timeout, trust_env=False, verify=certificates()
        )
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


class Addressed(Protocol):
    """A server to be started; `url` None: it has no HTTP routes."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str | None: ...


class ServerPorts:
    """Ports of the servers of a run folder, from their records."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.chosen: set[int] = set()

    def choose_port(self, name: str, host: str = "127.0.0.1") -> int:
        """Returns a local port for a server without a fixed one.

        It is the one in the server's record if possible, so that clients that know its URL find it again.
        """
        record = records.read_record(self.run_dir, name)
        known = urlsplit(record.url).port if record is not None and record.url else None
        if (
            record is not None
            and known is not None
            and (record.alive() or records.has_worker(self.run_dir, name) or bind_error(host, known) is None)
        ):
            return known
        # random, so that two runs that start at once rarely collide
        for port in random.sample(CHOSEN_PORTS, len(CHOSEN_PORTS)):
            if port not in self.chosen and bind_error(host, port) is None:
                self.chosen.add(port)
                return port
        raise ConfigError(f"no port in {CHOSEN_PORTS.start}-{CHOSEN_PORTS.stop} is free for the {name}")

    def check_ports(self, specs: Sequence[Addressed]) -> None:
        """Rejects a port that an unrelated process holds. A live server of this run folder may hold its own.

        Raises:
            ConfigError: names the server and the port.
        """
        recorded = records.read_records(self.run_dir)
        running = [one for one in recorded if one.alive() or records.has_worker(self.run_dir, one.name)]
        ours = {urlsplit(record.url).port for record in running if record.url}
        for spec in specs:
            address = urlsplit(spec.url or "")
            if address.port is None or address.port in ours:
                continue
            error = bind_error(address.hostname or "127.0.0.1", address.port)
            if error is not None:
                raise ConfigError(
                    f"port {address.port}, needed by the {spec.name}, cannot be used ({error.strerror}): "
                    "stop the program that uses it or choose another port"
                ) from error


class ServerManager(ServerPorts):
    """Owns the servers whose records are in `run_dir`. Public methods may be called from any thread.

    Args:
        run_dir: the run folder.
        base_env: environment of the servers, to which a spec adds its own; default: this process's.
    """

    def __init__(self, run_dir: Path | str, base_env: Mapping[str, str] | None = None) -> None:
        super().__init__(Path(run_dir))
        self.base_env = {k: v for k, v in (base_env or os.environ).items() if k != control.MARK}
        self.servers: dict[str, Watched] = {}
        self.lock = threading.RLock()
        self.kills = MemoryKills()

    def start_all(self, specs: Sequence[ServerSpec]) -> None:
        """Adopts or starts all servers concurrently until all are ready; stops servers without a spec.

        Raises:
            ConfigError: a server gave up before it was ready, `START_ATTEMPTS` times in a row.
            EngineError: a server was not ready in its `start_timeout`.
        """
        self.adopt_or_launch_all(specs)
        for spec in specs:
            self.wait_ready(spec)

    def adopt_or_launch_all(self, specs: Sequence[ServerSpec]) -> None:
        """The first half of `start_all`, without waiting."""
        self.check_ports(specs)
        names = {spec.name for spec in specs}
        for record in self.processes():
            if record.name not in names:
                self.stop(record.name)
        for spec in specs:
            self.adopt_or_launch(spec)

    def ensure(self, spec: ServerSpec) -> ProcessRecord:
        """Adopts a live server of the same name and command, or starts it; returns when it is ready."""
        self.adopt_or_launch(spec)
        return self.wait_ready(spec)

    def adopt_or_launch(self, spec: ServerSpec) -> None:
        with self.lock:
            record = records.read_record(self.run_dir, spec.name)
            if record is not None and record.alive():
                if record.command == spec.command:
                    logger.info("adopted %s (pid %d)", spec.name, record.pid)
                    self.servers[spec.name] = Watched(spec, record)
                    return
                logger.info("%s runs with another command: it is replaced", spec.name)
                control.terminate(record)
            log_start = control.log_size(self.run_dir, spec.name)
            self.servers[spec.name] = Watched(spec, self.launch(spec), log_start=log_start)

    def launch(self, spec: ServerSpec) -> ProcessRecord:
        logger.info("starting %s", spec.name)
        env = {**self.base_env, **spec.env}
        return control.spawn(self.run_dir, spec.name, spec.role, spec.command, spec.url, env)

    def wait_ready(self, spec: ServerSpec) -> ProcessRecord:
        """Waits for the first successful health check; a server that dies meanwhile is restarted a few times."""
        watched = self.servers[spec.name]
        deadline = time.monotonic() + spec.start_timeout
        while time.monotonic() < deadline:
            self.restart_dead()
            if watched.failed_starts >= START_ATTEMPTS:
                tail = control.log_tail(self.run_dir, spec.name)
                raise ConfigError(
                    with_advice(f"the {spec.name} exited {START_ATTEMPTS} times during its start:\n{tail}")
                )
            if is_ready(watched):
                watched.ready = True
                return watched.record
            time.sleep(0.1)
        tail = control.log_tail(self.run_dir, spec.name)
        raise EngineError(with_advice(f"the {spec.name} was not ready in {spec.start_timeout:g} s:\n{tail}"))

    def restart_dead(self) -> None:
        """Checks the process table once. A dead server is restarted at once, one that never became ready after a
        delay."""
        for name, watched in list(self.servers.items()):
            with self.lock:
                if name not in self.servers or watched.record.alive():
                    continue
                if watched.restart_at is None:
                    note_death(watched, self.run_dir, self.kills.news())
                if watched.restart_at is not None and time.monotonic() >= watched.restart_at:
                    watched.ready, watched.unhealthy, watched.restart_at = False, 0, None
                    watched.log_start = control.log_size(self.run_dir, name)
                    watched.record, watched.since = self.launch(watched.spec), time.monotonic()

    def stop(self, name: str) -> None:
        """Stops one server and removes its record; does nothing if its process is gone."""
        with self.lock:
            self.servers.pop(name, None)
            record = records.read_record(self.run_dir, name)
        if record is not None:
            control.terminate(record)
            records.forget(self.run_dir, name)

    def stop_all(self) -> None:
        """Stops every server recorded in the run folder, including those of an earlier manager."""
        names = [record.name for record in self.processes()]
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            list(pool.map(self.stop, names))
        # workers of killed socket supervisors
        for record in filter(records.is_worker, records.read_records(self.run_dir)):
            self.stop(record.name)

    def processes(self) -> list[ProcessRecord]:
        """Returns the live servers of the run folder, without the workers of socket supervisors."""
        return [
            record
            for record in records.read_records(self.run_dir)
            if record.role not in OWN_ROLES and not records.is_worker(record) and record.alive()
        ]


def note_death(watched: Watched, run_dir: Path, reason: str) -> None:
    """Decides when the server is restarted, also using the kernel's log line about its end, if any."""
    if watched.ready:
        watched.failed_starts = 0
    elif control.log_size(run_dir, watched.spec.name) > watched.log_start:  # a killed server logs nothing
        watched.failed_starts += 1
    watched.restart_at = time.monotonic() + restart_delay(watched.failed_starts)
    watched.restarts += 1
    gone = f"{watched.spec.name} (pid {watched.record.pid}) is gone"
    logger.warning("%s", with_advice(f"{gone}: {reason}") if reason else gone)
