"""Runs a real PostgreSQL server in a temporary folder, which can be stopped and started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

QUICK = ("-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "listen_addresses=")
START_S = 60.0


def binaries() -> Path | None:
    """Returns the folder of `initdb` and `postgres`; None if no server is installed."""
    program = shutil.which("postgres")
    folders = [Path(program).resolve().parent] if program else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class PostgresServer:
    """A server that listens on a Unix socket in its own folder; `url` is its database. Raises FileNotFoundError if
    none is installed, RuntimeError if it does not start."""

    def __init__(self) -> None:
        folder = binaries()
        if folder is None:
            raise FileNotFoundError("no PostgreSQL server: install one (Debian: apt-get install postgresql)")
        self._postgres = folder / "postgres"
        self._folder = Path(tempfile.mkdtemp(prefix="rlpg"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(self._folder, "postgres", "postgres")
            self._user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        words = [
            folder / "initdb",
            "-D",
            self._folder / "data",
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
        ]
        quiet = {"check": True, "cwd": self._folder, "stdout": subprocess.DEVNULL}
        subprocess.run([*words, "--no-sync"], **quiet, **self._user)
        self.url = f"postgresql+psycopg://postgres@/postgres?host={self._folder}"
        self.start()

    def start(self) -> None:
        """Starts the server; returns when it answers."""
        words = [self._postgres, "-D", self._folder / "data", *QUICK, "-k", str(self._folder)]
        log = self._folder / "log"
        with log.open("a") as file:
            self._server = subprocess.Popen(words, cwd=self._folder, stdout=file, stderr=file, **self._user)
        deadline = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(host=str(self._folder), user="postgres").close()
                return
            except psycopg.OperationalError as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {log.read_text()}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        """Stops the server without waiting for its clients (PostgreSQL's fast shutdown)."""
        self._server.send_signal(signal.SIGINT)
        self._server.wait(timeout=60)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)
