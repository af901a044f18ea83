"""A real PostgreSQL server in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a real PostgreSQL server in a temporary folder, behind a Unix socket."""
    binaries = _server_binaries()
    if binaries is None:
        pytest.skip("NO POSTGRESQL SERVER TO TEST WITH: install one (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="rlpg"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    data = folder / "data"
    quick = ["-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "listen_addresses=", "-k", str(folder)]
    initdb = [binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"]
    subprocess.run(initdb, check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, *quick], cwd=folder, stdout=log, stderr=log, **user
        )
    try:
        _wait_for(server, folder)
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=20)
        shutil.rmtree(folder)


def _server_binaries() -> Path | None:
    found = shutil.which("postgres")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def _wait_for(server: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(host=str(folder), user="postgres").close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
            time.sleep(0.05)
