"""Starts the real loop by its launch script, with its own folder and port; for benchmarks and tests."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from claw_base.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
TINY_SCRIPT = ROOT / "openclaw-rl" / "run_tiny_openclaw_rl.sh"


def exit_on_sigterm() -> None:
    """Makes SIGTERM unwind this process, so that its loop ends with it; an existing handler stays."""
    alone = threading.current_thread() is threading.main_thread()
    if alone and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Loop:
    """A running loop: launch script, driver, servers. `url` is the gateway's address.

    Args:
        run_dir: its run folder; nothing else on the machine is changed.
        flags: further driver flags.
        env: further variables for the launch script.
    """

    def __init__(
        self,
        run_dir: Path,
        flags: list[str] | None = None,
        env: dict[str, str] | None = None,
        script: Path = TINY_SCRIPT,
    ) -> None:
        self.run_dir = run_dir
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.flags = flags or []
        self.script = script
        self.env = {**os.environ, **(env or {}), "PORT": str(self.port), "RUN_DIR": str(run_dir)}
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Loop:
        exit_on_sigterm()
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.started_at = time.monotonic()
        with open(self.run_dir / "launch.log", "ab") as log:
            self._process = subprocess.Popen(
                ["bash", str(self.script), *self.flags],
                env=self.env,
                cwd=self.script.parents[1],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    def stop(self, timeout_s: float = 60.0) -> int | None:
        """Sends SIGTERM to the launch script, like Ctrl-C; returns its exit status."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def wait_ready(self, timeout_s: float = 120.0) -> float:
        """Waits until the gateway can serve; returns the seconds since `start`."""
        self.wait_for(
            lambda: httpx.get(f"{self.url}/readyz", timeout=5.0).status_code == 200, timeout_s, "/readyz"
        )
        return time.monotonic() - self.started_at

    def wait_for(self, condition: Any, timeout_s: float, what: str) -> None:
        """Polls `condition` until it is true.

        Raises:
            TimeoutError: with the end of the launch log.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if condition():
                    return
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(
                    f"the launch script ended with {self._process.returncode}\n{self.log_tail()}"
                )
            time.sleep(0.1)
        raise TimeoutError(f"no {what} after {timeout_s} s\n{self.log_tail()}")

    def log_tail(self, size: int = 4000) -> str:
        return (self.run_dir / "launch.log").read_text(errors="replace")[-size:]

    def status(self) -> dict[str, Any]:
        result: dict[str, Any] = httpx.get(f"{self.url}/status", timeout=10.0).json()
        return result

    def pids(self, role: str) -> list[int]:
        processes = httpx.get(f"{self.url}/admin/processes", timeout=10.0).json()
        return [process["pid"] for process in processes if process["role"] == role]

    def kill(self, role: str) -> int:
        """Sends SIGKILL to the process with this role in the run; returns its pid."""
        pid = self.pids(role)[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    def turns(self, columns: str = "*") -> list[sqlite3.Row]:
        """Returns rows of the store's turn table, read by SQL."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.run_dir}/buffer/buffer.db?mode=ro", uri=True)
        ) as database:
            database.row_factory = sqlite3.Row
            return database.execute(f"SELECT {columns} FROM turn").fetchall()

    def memory_mib(self) -> float:
        """Returns the memory of all processes of this run in MiB, counting shared pages once."""
        members = {process.pid: process for process in self._members()}
        total = 0
        for process in members.values():
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total / 2**20

    def _members(self) -> Iterator[psutil.Process]:
        roots = [self._process.pid] if self._process else []
        roots += [process["pid"] for process in httpx.get(f"{self.url}/admin/processes", timeout=10.0).json()]
        for pid in roots:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                yield process
                yield from process.children(recursive=True)


@contextlib.contextmanager
def running_loop(run_dir: Path, start_s: float = 120.0, **options: Any) -> Iterator[Loop]:
    """Yields a loop that is ready to serve; always stops it at the end."""
    loop = Loop(run_dir, **options).start()
    try:
        loop.wait_ready(start_s)
        yield loop
    finally:
        loop.stop()
