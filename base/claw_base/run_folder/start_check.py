"""`python -m claw_base.run_folder.start_check RUN_DIR [HOST PORT]`: prints the reason if a run cannot start there.

Reasons: the folder is in use, or another program holds the port. Needs no packages; without psutil, processes of the
run are not recognized.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from claw_base.errors import ConfigError
from claw_base.ports import listen

LOCK = "supervisor.lock"
"""File of a run folder that the run's supervisor locks while it runs; it contains the pid."""


def check_unused(run_dir: Path) -> None:
    """Raises ConfigError if a supervisor has locked the run folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), (run_dir / LOCK).open("r+") as lock:
        hold(lock, run_dir)


def hold(lock: IO[str], run_dir: Path) -> None:
    """Locks the open lock file of a run folder. Raises ConfigError if another process has locked it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise ConfigError(
            f"{run_dir} is in use by the supervisor with pid {lock.read().strip() or '?'}; stop that run first (Ctrl-C "
            "or SIGTERM)"
        ) from None


def check_port(host: str, port: int, run_dir: str) -> None:
    """Rejects a port that another program holds. A gateway of this run folder, its socket supervisor or its spare may
    hold it: the run adopts them.

    Raises:
        ConfigError: the port is taken.
    """
    if not 1 <= port <= 65535:
        raise ConfigError(f"port {port} does not exist; give one from 1 to 65535 with PORT=...")
    if not _has_gateway(Path(run_dir)):
        listen(host, port).close()


def _has_gateway(run_dir: Path) -> bool:
    try:
        from claw_base.run_folder.records import live_processes
    except ModuleNotFoundError:  # psutil is missing
        return False
    return any(process["name"].partition(".")[0] == "gateway" for process in live_processes(run_dir))


def main(words: Sequence[str]) -> None:
    """Prints the reason if a run cannot start."""
    run_dir, *address = words
    try:
        check_unused(Path(run_dir))
        if address:
            check_port(address[0], int(address[1]), run_dir)
    except (ConfigError, OSError) as error:
        print(error)


if __name__ == "__main__":
    main(sys.argv[1:])
