"""Ports of the servers of a run: those that are chosen, and those that somebody else holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from claw_base.ports import bind_error
from claw_base.run_folder import records
from slime.errors import ConfigError

CHOSEN_PORTS = range(
    21000, 31000
)  # below the ports that systems give to outgoing connections: free again at a restart


class Addressed(Protocol):
    """A server that is to be started; `url` None: it has no HTTP side."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str | None: ...


class ServerPorts:
    """Knows the servers of a run folder by their records."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.chosen: set[int] = set()

    def choose_port(self, name: str) -> int:
        """A port on 127.0.0.1 for a server that may have any.

        It is the one of the server's record where that can be had, so that who knows its URL finds it again.
        """
        record = records.read_record(self.run_dir, name)
        known = urlsplit(record.url).port if record is not None and record.url else None
        if (
            record is not None
            and known is not None
            and (
                record.alive()
                or records.has_worker(self.run_dir, name)
                or bind_error("127.0.0.1", known) is None
            )
        ):
            return known
        for port in random.sample(CHOSEN_PORTS, len(CHOSEN_PORTS)):  # two runs that start at once seldom meet
            if port not in self.chosen and bind_error("127.0.0.1", port) is None:
                self.chosen.add(port)
                return port
        raise ConfigError(f"no port in {CHOSEN_PORTS.start}-{CHOSEN_PORTS.stop} is free for the {name}")

    def check_ports(self, specs: Sequence[Addressed]) -> None:
        """Refuses a port that a foreign process holds. A live server of this run folder may hold its own.

        Raises:
            ConfigError: names the server and the port.
        """
        found = records.read_records(self.run_dir)
        mine = [one for one in found if one.alive() or records.has_worker(self.run_dir, one.name)]
        ours = {urlsplit(record.url).port for record in mine if record.url}
        for spec in specs:
            address = urlsplit(spec.url or "")
            if address.port is None or address.port in ours:
                continue
            error = bind_error(address.hostname or "127.0.0.1", address.port)
            if error is not None:
                raise ConfigError(
                    f"port {address.port}, wanted by the {spec.name}, cannot be used ({error.strerror}): "
                    "stop the program that holds it or choose another port"
                ) from error
