"""The outermost process of a run: keeps the driver alive, and stops exactly what the run started.

    python -m slime.supervisor --run-dir DIR [--max-restarts 20] -- COMMAND ...

The driver runs in a session of its own. If it dies it is started again and adopts the servers, which go on
meanwhile. Exit status 0 of the driver means that training is done, 2 that its configuration is wrong: neither
is tried again. INT, TERM and HUP stop the driver, its Ray processes and every server of the run folder.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import psutil

from slime import processes
from slime.errors import ConfigError
from slime.servers import ServerManager

CONFIG_ERROR_STATUS = 2
WINDOW = 600.0  # seconds in which the restarts are counted
BACKOFF = 1.0  # seconds before the driver starts again
DRIVER_GRACE = 10.0  # seconds the driver has to end after TERM


class Supervisor:
    """Runs `command` (the driver of `run_dir`) until it is done, a signal asks for the end, or `parent` has ended."""

    def __init__(
        self, run_dir: Path, command: Sequence[str], max_restarts: int = 20, parent: int | None = None
    ) -> None:
        self.run_dir = run_dir
        try:
            self.parent = None if parent is None else psutil.Process(parent)
        except psutil.NoSuchProcess as error:
            raise ConfigError(f"--parent {parent}: there is no such process") from error
        self.command = list(command)
        self.max_restarts = max_restarts
        self.deaths: deque[float] = deque()
        self.signal_number: int | None = None

    def run(self) -> int:
        """Returns an exit status: 0 when done or asked to stop, else the driver's or 1."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.note_signal)
        processes.kill_marked(self.run_dir)  # a driver whose supervisor was killed
        try:
            while True:
                status = self.run_driver()
                if self.must_end():
                    return 0
                if status in (0, CONFIG_ERROR_STATUS):
                    return status
                if self.too_many_deaths():
                    say(f"the driver died {len(self.deaths)} times in {WINDOW:g} s: giving up")
                    return 1
                say(f"the driver ended with status {status}; starting it again (servers go on)")
                time.sleep(BACKOFF)
        finally:
            ServerManager(self.run_dir).stop_all()
            shutil.rmtree(processes.scratch_dir(self.run_dir), ignore_errors=True)

    def note_signal(self, number: int, frame: object) -> None:
        self.signal_number = number

    def must_end(self) -> bool:
        return self.signal_number is not None or (self.parent is not None and has_ended(self.parent))

    def run_driver(self) -> int:
        """One life of the driver, after which nothing of it (Ray included) runs any more."""
        env = {**os.environ, processes.MARK: processes.mark_of(self.run_dir)}
        driver = subprocess.Popen(self.command, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            while driver.poll() is None and not self.must_end():
                time.sleep(0.1)
            if driver.poll() is None:
                driver.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    driver.wait(DRIVER_GRACE)
        finally:
            if driver.poll() is None:
                driver.kill()
            driver.wait()
            processes.kill_marked(self.run_dir)
        return driver.returncode

    def too_many_deaths(self) -> bool:
        now = time.monotonic()
        self.deaths.append(now)
        while now - self.deaths[0] > WINDOW:
            self.deaths.popleft()
        return len(self.deaths) > self.max_restarts


@contextlib.contextmanager
def only_supervisor(run_dir: Path) -> Iterator[None]:
    """Holds the run folder; the system lets go of it when the process ends, however that happens.

    Raises:
        ConfigError: another supervisor holds it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / "supervisor.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{run_dir} is in use by the supervisor with pid {holder(lock)}") from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def holder(lock: IO[str]) -> str:
    lock.seek(0)
    return lock.read().strip() or "?"


def say(message: str) -> None:
    print(f"supervisor: {message}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m slime.supervisor", description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", type=Path, required=True, help="folder of the run")
    parser.add_argument(
        "--max-restarts", type=int, default=20, help=f"restarts of the driver in {WINDOW:g} s"
    )
    parser.add_argument("--parent", type=int, default=None, help="pid of a process with which the run ends")
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND", help="the driver and its arguments, after --"
    )
    args = parser.parse_args(argv)
    run_dir = args.run_dir.resolve()
    try:
        with only_supervisor(run_dir):
            return Supervisor(run_dir, args.command, args.max_restarts, args.parent).run()
    except ConfigError as error:
        say(str(error))
        return CONFIG_ERROR_STATUS


if __name__ == "__main__":
    sys.exit(main())
