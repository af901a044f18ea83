"""Runs a third-party engine as a child process of the launcher; the child never outlives the launcher."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType, TracebackType

import httpx

from slime.errors import EngineError
from slime.utils.certificates import certificates

POLL_SECONDS = 0.3
STOP_SECONDS = 6.0
PR_SET_PDEATHSIG = 1


class EngineGone(EngineError):
    """The child exited before it was ready, with exit status `status` (2: it rejected its arguments)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ChildEngine:
    """A running child process that serves HTTP at `url`; leaving the context terminates it, also on a signal.

    The child's stdout is redirected to stderr, because stdout is reserved for the ready line.

    Args:
        command: command line of the child.
        url: URL that the child will serve.
        env: the child's environment.
        orphaned: signal that the child receives if the launcher is killed (Linux).
    """

    def __init__(
        self,
        command: Sequence[str],
        url: str,
        env: Mapping[str, str],
        orphaned: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.url = url
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env=dict(env),
            preexec_fn=partial(_die_with_parent, orphaned),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)

    def wait_until(self, is_ready: Callable[[], bool], limit: float | None = None) -> None:
        """Waits until `is_ready` returns True.

        Raises:
            EngineGone: the child ended.
            EngineError: it is not ready after `limit` seconds (None: no limit).
        """
        deadline = None if limit is None else time.monotonic() + limit
        while not is_ready():
            status = self.process.poll()
            if status is not None:
                raise EngineGone(f"the engine exited with status {status} before it was ready", status)
            if deadline is not None and time.monotonic() > deadline:
                raise EngineError(f"the engine was not ready after {limit:g} s")
            time.sleep(POLL_SECONDS)

    def announce(self, model: str, version: int, **more: str) -> None:
        """Prints the ready line on stdout."""
        ready = {"url": self.url, "model": model, "version": version, "pid": os.getpid(), **more}
        print(json.dumps(ready), flush=True)

    def wait(self) -> int:
        """Waits for the child's exit and returns a nonzero status: a server must not exit on its own."""
        return self.process.wait() or 1

    def __enter__(self) -> ChildEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Terminates the child, with SIGKILL after `STOP_SECONDS`."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)  # interrupts any wait, through `ChildEngine.__exit__`


def answers(url: str, path: str = "/health") -> bool:
    """Returns whether a GET returns status 200."""
    try:
        return httpx.get(url + path, timeout=5.0, trust_env=False, verify=certificates()).status_code == 200
    except httpx.HTTPError:
        return False


def _die_with_parent(number: signal.Signals) -> None:
    """Makes the kernel (Linux) send a signal to the child when the launcher is killed."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
