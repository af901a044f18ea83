"""Runs an engine as a subprocess of the gateway, and restarts it when it exits.

The launcher of the trainer framework (`python -m slime.engines.launch`) starts the engine, and prints one JSON line
when it is ready. This module imports no code of the framework.
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
    """One engine on a local port.

    Attributes:
        url: base URL, the same after a restart.
        pid: process id; None while the engine does not run.
    """

    def __init__(self, command: list[str], port: int) -> None:
        self.command = [*command, "--host", "127.0.0.1", "--port", str(port)]
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.pid: int | None = None
        self._last_line = ""

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
        """Returns an engine, not started yet, for the model in a folder.

        Args:
            port: None for any free port.
        """
        command = [sys.executable, "-m", "slime.engines.launch", "--backend", backend]
        command += ["--model-path", str(model_path), "--standby", standby]
        if context_length is not None:
            command += ["--context-length", str(context_length)]
        if max_loaded_adapters is not None:
            command += ["--max-loaded-adapters", str(max_loaded_adapters)]
        return cls(command, free_port() if port is None else port)

    async def run(self) -> None:
        """Keeps the engine running until cancelled. Raises ConfigError if it exits before it was ever ready."""
        pause, was_ready = FIRST_PAUSE_SECONDS, False
        while True:
            ready = await self._run_once()
            if not (ready or was_ready):
                raise ConfigError(f"the engine did not start: {self._last_line or 'it printed no output'}")
            was_ready = True
            pause = FIRST_PAUSE_SECONDS if ready else min(pause * 2, LONGEST_PAUSE_SECONDS)
            log.warning("the engine exited (%s); restarting it", self._last_line or "no output")
            await asyncio.sleep(pause)

    async def _run_once(self) -> bool:
        """Runs the engine until it exits. Returns whether it became ready."""
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
        forwarding = asyncio.create_task(self._forward(process.stderr))
        try:
            ready = self._is_ready(await process.stdout.readline())
            while await process.stdout.read(CHUNK):
                pass
            await process.wait()
            await forwarding
            return ready
        finally:
            self.pid = None
            await _stop(process)
            forwarding.cancel()

    def _is_ready(self, line: bytes) -> bool:
        if not line:
            return False
        try:
            return "url" in orjson.loads(line)
        except (orjson.JSONDecodeError, TypeError) as error:
            raise EngineError(
                f"the engine printed {line[:200]!r} instead of its ready line (JSON)"
            ) from error

    async def _forward(self, stream: asyncio.StreamReader) -> None:
        """Copies the engine's output to stderr. It is read in chunks instead of lines, because a progress bar has no
        newline, and an engine blocks if its pipe is full."""
        while data := await stream.read(CHUNK):
            lines = data.decode("utf-8", "replace").splitlines()
            self._last_line = next(
                (line.strip() for line in reversed(lines) if line.strip()), self._last_line
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
    """Returns a function for the child process that makes the kernel end it when the gateway dies; None unless on
    Linux."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def set_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return set_signal
