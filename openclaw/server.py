"""The gateway: `python -m openclaw.server --model-path FOLDER --enable-rl-intercept --rl-buffer-dir DIR`.

Serves the OpenAI API in front of an engine that it launches, or of running ones (`--engine-url`). On Linux the
started process is a socket supervisor (`base/claw_base/hotswap`): it holds the port and forks the gateway. A spare
replaces the gateway when it dies, and a new program does on SIGHUP. Elsewhere it is one process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
import uvloop
from fastapi import FastAPI

from claw_base.files import own_run_folder
from claw_base.hotswap.worker_channel import WorkerChannel
from claw_base.ports import listen
from openclaw.common.open_files import raise_open_file_limit
from openclaw.common.unsampled import advice
from openclaw.engine.process import EngineProcess
from openclaw.errors import ClawError
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.socket_supervisor import GatewaySupervisor, launched_engine
from openclaw.http.admin_key import with_admin_key
from openclaw.http.app import gateway_app
from openclaw.http.middleware import protocol_for
from openclaw.page.app import add_page
from openclaw.settings import Settings, load_settings
from openclaw.store.database import shown

log = logging.getLogger(__name__)

GRACE_SECONDS = 5
"""Seconds for open answers to finish after a stop was requested."""
LAST_REQUESTS_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 75
CANNOT_WORK = 2
COLLECT_AFTER = 10_000
"""Number of new container objects until the next garbage collection. The prompt of a long conversation is several
lists of many thousand ids, and a collection visits each id."""
LOOKED_AT = 50
"""Number of newest turns whose temperatures are checked."""


def create_app(settings: Settings, engine_urls: Sequence[str], launched_url: str | None = None) -> FastAPI:
    """Returns the gateway and its page as one ASGI app; see `gateway_app`. Raises ConfigError, StoreError."""
    app = gateway_app(settings, engine_urls, launched_url)
    add_page(app)
    return app


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Serves until a signal, in this process. Raises ConfigError if the launched engine never becomes ready."""
    launched = launched_engine(settings)
    app = create_app(settings, *_engines(settings, launched))
    server = _Server(http_config(settings, app))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    tasks = [asyncio.create_task(_announce(app, listener))]
    if launched is not None:
        tasks.append(asyncio.create_task(launched.run()))
        await asyncio.wait([serving, tasks[1]], return_when=asyncio.FIRST_COMPLETED)
        server.stop()
    await serving
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, ClawError):
            raise result


async def serve_supervised(
    settings: Settings, listener: socket.socket, launched: EngineProcess | None, channel: WorkerChannel
) -> None:
    """Runs a worker: builds the app, waits for its turn, and serves until a signal or until another worker serves."""
    app = create_app(settings, *_engines(settings, launched))
    server = _Server(http_config(settings, app), channel)
    channel.built()
    await channel.wait_for_turn(listener)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    tasks = [asyncio.create_task(server.finish_when_ordered(listener, settings.request_timeout))]
    gateway: Gateway = app.state.gateway
    tasks.append(asyncio.create_task(gateway.engines.learn()))
    if channel.first:
        tasks.append(asyncio.create_task(_announce(app, listener)))
    await server.serve(sockets=[listener])
    for task in tasks:
        task.cancel()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit status: 2 for an invalid configuration."""
    try:
        settings = load_settings(argv)
        logging.basicConfig(
            level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
        )
        # one text at a time: threads would only add overhead
        os.putenv("TOKENIZERS_PARALLELISM", "false")
        raise_open_file_limit()
        gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
        if settings.run_dir and Path(settings.run_dir).is_dir():
            own_run_folder(Path(settings.run_dir))
        if settings.enable_rl_intercept and settings.rl_buffer_dir:
            own_run_folder(Path(settings.rl_buffer_dir), "--rl-buffer-dir")
        settings = with_admin_key(settings)
        if sys.platform.startswith("linux"):
            return GatewaySupervisor(settings).run(_work)
        with listen(settings.host, settings.port) as listener:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(settings, listener))
    except ClawError as error:
        print(f"error: {error}", file=sys.stderr)
        return CANNOT_WORK
    return 0


def _work(
    settings: Settings, listener: socket.socket, launched: EngineProcess | None, channel: WorkerChannel
) -> int:
    """Runs a worker of the socket supervisor; returns its exit status."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_supervised(settings, listener, launched, channel))
    except ClawError as error:
        channel.refuse(f"error: {error}")
        return CANNOT_WORK
    return 0


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller. `channel`: connection to the supervisor, which is notified
    when it serves."""

    def __init__(self, config: uvicorn.Config, channel: WorkerChannel | None = None) -> None:
        super().__init__(config)
        self._channel = channel

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self._channel is not None:
            self._channel.serving()

    async def finish_when_ordered(self, listener: socket.socket, longest: float) -> None:
        """Another worker serves now: stops accepting connections, and exits when open answers have finished, after at
        most `longest` seconds."""
        assert self._channel is not None
        await self._channel.wait_for_finish(listener)
        for accepting in self.servers:
            accepting.close()
        # for open connections: closing one now could lose its next request
        await asyncio.sleep(LAST_REQUESTS_SECONDS)
        self.config.timeout_graceful_shutdown = round(longest) + 1
        self.stop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _engines(settings: Settings, launched: EngineProcess | None) -> tuple[Sequence[str], str | None]:
    return (settings.engine_url, None) if launched is None else ([launched.url], launched.url)


def http_config(settings: Settings, app: FastAPI) -> uvicorn.Config:
    """Returns uvicorn's configuration. The client is the connected address; forwarding headers count only from a
    trusted proxy."""
    return uvicorn.Config(
        app,
        http=protocol_for(settings.client_timeout),
        log_level=settings.log_level,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        lifespan="on",
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies,
    )


async def _announce(app: FastAPI, listener: socket.socket) -> None:
    """Prints one line on stdout once requests can be answered."""
    gateway: Gateway = app.state.gateway
    await gateway.engines.wait_ready()
    host, port = listener.getsockname()[:2]
    buffer = gateway.settings.buffer
    recording = "recording nothing" if buffer is None else f"recording to {shown(buffer)}"
    address = f"[{host}]" if ":" in host else host
    print(f"ready: http://{address}:{port}/v1 serves {gateway.model_name}, {recording}", flush=True)
    if gateway.recorder is not None:
        newest = await asyncio.to_thread(gateway.recorder.store.status.recent, LOOKED_AT)
        warning = advice([one.unsampled for one in newest if one.turn_type == "main"])
        if warning is not None:
            log.warning(warning)


if __name__ == "__main__":
    sys.exit(main())
