"""`python -m slime.pool --environment file.py:Class` serves environments of this host;
`python -m slime.pool --pools URL,URL` routes to several such pools."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from claw_base.settings.command_line import parse
from claw_base.settings.declare import flag
from slime.errors import ConfigError
from slime.plugins import load_attr
from slime.pool.keys import is_loopback, new_key, store_key
from slime.pool.leases import PoolLimits
from slime.pool.router import router_app
from slime.pool.service import pool_app

POOL_PORT, ROUTER_PORT = 18081, 18080


LIMITS = PoolLimits()


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """The environment that a pool serves, or the pools that it routes to, and its address."""

    environment: str | None = flag(
        None,
        "class or function without arguments that creates an environment: file.py:Class",
        one_of="served",
    )
    pools: str | None = flag(None, "addresses of pools to route to, separated by commas", one_of="served")
    host: str = flag("127.0.0.1", "address to listen on")
    port: int | None = flag(None, f"port to listen on (default: {POOL_PORT}, of a router {ROUTER_PORT})")
    key_file: Path | None = flag(
        None,
        "file with the clients' key (default: a new key at each start)",
        unit="path",
    )
    tasks: Path | None = flag(None, "folder that must contain a request's task_path", unit="path")
    max_runs: int = flag(LIMITS.max_runs, "concurrent environments")
    max_tasks: int = flag(LIMITS.max_tasks, "concurrent tasks")
    max_runs_per_task: int = flag(LIMITS.max_runs_per_task, "concurrent environments of one task")
    run_idle_ttl: float = flag(LIMITS.ttl, "seconds without a heartbeat after which an environment is closed")


def app_of(settings: PoolSettings, own_key: str | None = None) -> Starlette:
    """Returns the app; clients need `own_key` if there is no key file. Raises ConfigError."""
    key, only_here = read_key(settings.key_file, settings.host), is_loopback(settings.host)
    if settings.pools:
        urls = [url for url in settings.pools.split(",") if url]
        return router_app(urls, key, own_key=own_key, only_here=only_here)
    limits = PoolLimits(
        settings.max_runs, settings.max_tasks, settings.max_runs_per_task, ttl=settings.run_idle_ttl
    )
    for name, value in vars(limits).items():
        if value <= 0:
            raise ConfigError(f"{name} of a pool must be more than 0, got {value}")
    if settings.tasks is not None and not settings.tasks.is_dir():
        raise ConfigError(f"--tasks {settings.tasks} is not a folder")
    factory = load_attr(settings.environment or "")
    if not callable(factory):
        raise ConfigError(f"--environment {settings.environment} is a {type(factory).__name__}, not a class")
    factory()  # an environment that cannot be created is rejected at the start
    return pool_app(factory, limits, key or own_key, settings.tasks, only_here)


def read_key(path: Path | None, host: str) -> str | None:
    """Reads the key. Raises ConfigError if other machines can connect and there is none, or if it is empty."""
    if path is None:
        if not is_loopback(host):
            raise ConfigError(f"a pool on {host} is reachable from other machines: give --key-file")
        return None
    try:
        key = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"--key-file {path}: {error.strerror}") from error
    if not key:
        raise ConfigError(f"--key-file {path} is empty")
    return key


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises ConfigError if the port is in use."""
    try:
        return socket.create_server((host, port), backlog=256)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; give another --port") from error


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse(PoolSettings, argv, "python -m slime.pool", __doc__)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        own_key = new_key()
        app = app_of(settings, own_key)
        port = settings.port if settings.port is not None else ROUTER_PORT if settings.pools else POOL_PORT
        listener = listen(settings.host, port)
        port = listener.getsockname()[1]
        key_path = store_key(own_key, port) if settings.key_file is None else settings.key_file
    except (ConfigError, OSError) as error:
        sys.exit(f"python -m slime.pool: {error}")
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
    print(f"listening on http://{settings.host}:{port}, key in {key_path}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
