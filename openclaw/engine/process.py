"""An engine that the gateway runs as its own subprocess and restarts when it dies.

The trainer framework's launcher (`python -m slime.engines.launch`) starts it and prints one JSON line when it is
ready; nothing of the framework is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import orjson

from claw_base.ports import free_port
from openclaw.errors import ConfigError, EngineError

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
CHUNK = 1 << 16
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


class EngineProcess:
    """One engine on a free local port; `url` survives restarts, `pid` is None while it is down."""

    def __init__(self, command: list[str], port: int) -> None:
        self.command = [*command, "--host", "127.0.0.1", "--port", str(port)]
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.pid: int | None = None
        self._last_words = ""

    @classmethod
    def of(
        cls,
        backend: str,
        model_path: Path,
        context_length: int | None,
        standby: str = "auto",
        port: int | None = None,
        max_loaded_adapters: int | None = None,
    ) -> EngineProcess:
        """Returns the engine for a model folder, started by the framework's launcher; `port` None: any free one."""
        command = [sys.executable, "-m", "slime.engines.launch", "--backend", backend]
        command += ["--model-path", str(model_path), "--standby", standby]
        if context_length is not None:
            command += ["--context-length", str(context_length)]
        if max_loaded_adapters is not None:
            command += ["--max-loaded-adapters", str(max_loaded_adapters)]
        return cls(command, free_port() if port is None else port)

    async def run(self) -> None:
        """Keeps the engine running until cancelled. Raises ConfigError if the engine never became ready."""
        pause, was_ready = FIRST_PAUSE_SECONDS, False
        while True:
            ready = await self._run_once()
            if not (ready or was_ready):
                raise ConfigError(f"the engine did not start: {self._last_words or 'it printed nothing'}")
            was_ready = True
            pause = FIRST_PAUSE_SECONDS if ready else min(pause * 2, LONGEST_PAUSE_SECONDS)
            log.warning("the engine ended (%s); starting it again", self._last_words or "no message")
            await asyncio.sleep(pause)

    async def _run_once(self) -> bool:
        """Runs the engine until it exits; returns whether it became ready."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )
        assert process.stdout is not None and process.stderr is not None
        self.pid = process.pid
        listening = asyncio.create_task(self._forward(process.stderr))
        try:
            ready = self._is_ready(await process.stdout.readline())
            while await process.stdout.read(CHUNK):
                pass
            await process.wait()
            await listening
            return ready
        finally:
            self.pid = None
            await _stop(process)
            listening.cancel()

    def _is_ready(self, line: bytes) -> bool:
        if not line:
            return False
        try:
            return "url" in orjson.loads(line)
        except (orjson.JSONDecodeError, TypeError) as error:
            raise EngineError(f"the engine printed no ready line but {line[:200]!r}") from error

    async def _forward(self, stream: asyncio.StreamReader) -> None:
        """Copies the output in chunks, not lines: a progress bar has no line end, and an engine blocks if its pipe is
        full."""
        while data := await stream.read(CHUNK):
            lines = data.decode("utf-8", "replace").splitlines()
            self._last_words = next(
                (line.strip() for line in reversed(lines) if line.strip()), self._last_words
            )
            sys.stderr.buffer.write(data)
            sys.stderr.flush()


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _die_with_parent() -> Callable[[], None] | None:
    """Returns a function that makes the kernel kill the engine when the gateway dies (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def set_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return set_signal
