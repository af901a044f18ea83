"""The outermost process of a run: keeps the driver alive, and stops exactly what the run started.

    python -m slime.processes.supervisor --run-dir DIR [--max-restarts 20] -- COMMAND ...
    python -m slime.processes.supervisor --run-dir DIR --stop

The driver runs in a separate session. If it dies it is restarted and adopts the servers, which continue meanwhile;
after five consecutive failures before the servers are up, the supervisor gives up. Exit status 0 of the driver means
that training is done, 2 that its configuration is invalid: neither is retried. 3 means that the cluster lacks
something: at the first start this is an error too, later the supervisor waits for it. INT, TERM and HUP stop the
driver, its Ray processes and every server of the run folder; a separate process does that, so that it finishes even
if a scheduler kills this one. A driver that announces it (`slime.processes.saving`) gets time for a checkpoint first;
the same signal again ends that. --stop does the same for a run without a supervisor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO

import psutil

from claw_base.files import own_run_folder
from claw_base.run_folder import records, usage
from claw_base.run_folder.start_check import LOCK, hold
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ConfigError
from slime.processes import control, nodes, scaling
from slime.processes.saving import ECHO, MORE, forget_saving, grace_of
from slime.processes.servers import OWN_ROLES, ServerManager
from slime.processes.started import forget_start, has_started

CONFIG_ERROR_STATUS = 2
CLUSTER_ERROR_STATUS = 3
WINDOW = 600.0  # seconds in which restarts are counted
BACKOFF = 1.0  # seconds before the driver is restarted; doubled after each failed start
ARGUMENTS = "arguments.json"
"""File that the driver writes when its run begins (`slime.arguments.record`)."""
FAILED_STARTS = (
    5  # consecutive failures, each before the servers were up, after which another start would not help
)


class Supervisor:
    """Runs `command` (the driver of `run_dir`) until it is done, a signal requests the end, or `parent` has
    exited."""

    def __init__(
        self,
        run_dir: Path,
        command: Sequence[str],
        max_restarts: int = 20,
        parent: int | None = None,
        cluster_retry: float = 15.0,
    ) -> None:
        self.run_dir = run_dir
        self.cluster_retry = cluster_retry
        try:
            self.parent = None if parent is None else psutil.Process(parent)
        except psutil.NoSuchProcess as error:
            raise ConfigError(f"--parent {parent}: there is no such process") from error
        self.command = list(command)
        self.max_restarts = max_restarts
        self.deaths: deque[float] = deque()
        self.failed_starts = 0
        self.signal_number: int | None = None
        self.signalled = 0.0
        self.at_once = False  # the same signal came again
        self.stopper: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Runs the driver; returns an exit status: 0 when done or stopped, else the driver's or 1."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.note_signal)
        control.kill_marked(self.run_dir)  # a driver whose supervisor was killed
        scaling.forget(self.run_dir)
        try:
            return self.run_drivers()
        finally:
            if self.must_end():
                report(f"stopping all processes of this run; the same command resumes {self.run_dir}")
            if (rented := usage.summary(self.run_dir)) is not None:
                report(f"used at the rented service: {rented}")
            (self.stopper or start_stop_process(self.run_dir)).wait()

    def run_drivers(self) -> int:
        """Runs one driver after another; returns an exit status."""
        lived = False
        while True:
            status = self.run_driver()
            if self.must_end():
                return 0
            if status in (0, CONFIG_ERROR_STATUS):
                return status
            if status == CLUSTER_ERROR_STATUS and not lived:
                return CONFIG_ERROR_STATUS
            if status == CLUSTER_ERROR_STATUS:
                report(
                    f"the cluster is not complete; trying again in {self.cluster_retry:g} s (servers keep running)"
                )
                self.pause(self.cluster_retry)
                continue
            lived = True
            failed = status > 0 and not has_started(self.run_dir)
            self.failed_starts = self.failed_starts + 1 if failed else 0
            if self.failed_starts >= FAILED_STARTS:
                report(
                    f"the driver failed {FAILED_STARTS} times in a row during its start (reasons above): giving up"
                )
                return 1
            if self.too_many_deaths():
                report(f"the driver died {len(self.deaths)} times in {WINDOW:g} s: giving up")
                return 1
            report(f"the driver ended with status {status}; starting it again (servers keep running)")
            self.pause(BACKOFF * 2 ** max(self.failed_starts - 1, 0))

    def pause(self, seconds: float) -> None:
        """Returns after these seconds, or when a stop was requested."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.must_end():
            time.sleep(0.1)

    def note_signal(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self.signal_number is None:
            self.signal_number, self.signalled = number, now
        elif number == self.signal_number and now - self.signalled > ECHO:
            self.at_once = True

    def must_end(self) -> bool:
        return self.signal_number is not None or (self.parent is not None and records.has_ended(self.parent))

    def run_driver(self) -> int:
        """Runs one driver; afterwards no process of it (including Ray) is left."""
        if self.must_end():
            return 0
        env = {**control.with_short_temporary(os.environ), control.MARK: control.mark_of(self.run_dir)}
        forget_saving(self.run_dir)
        forget_start(self.run_dir)
        driver = subprocess.Popen(self.command, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            while driver.poll() is None and not self.must_end():
                time.sleep(0.1)
            if driver.poll() is None:
                self.stopper = start_stop_process(self.run_dir, driver.pid)
                driver.terminate()
                self.wait_for_end(driver)
        finally:
            if driver.poll() is None:
                driver.kill()
            driver.wait()
            control.kill_marked(self.run_dir)
            show_cursor()
        return driver.returncode

    def wait_for_end(self, driver: subprocess.Popen[bytes]) -> None:
        """Returns when the driver has exited, its time is over, or the same signal came again."""
        began, limit = time.monotonic(), 0.0
        while driver.poll() is None and not self.at_once:
            # the process that ends the servers afterwards removes the announcement while the last threads of a large
            # process still exit
            limit = max(limit, grace_of(self.run_dir, driver.pid))
            if time.monotonic() - began > limit:
                report(f"the driver did not end within {limit:g} s: it is killed")
                return
            time.sleep(0.05)

    def too_many_deaths(self) -> bool:
        now = time.monotonic()
        self.deaths.append(now)
        while now - self.deaths[0] > WINDOW:
            self.deaths.popleft()
        return len(self.deaths) > self.max_restarts


@contextlib.contextmanager
def only_supervisor(run_dir: Path) -> Iterator[None]:
    """Locks the run folder; the system releases the lock when the process exits for any reason.

    Raises:
        ConfigError: another supervisor holds it.
    """
    own_run_folder(run_dir)
    with _locked(run_dir) as lock:
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _locked(run_dir: Path) -> IO[str]:
    """Opens and locks the lock file of a run folder. A rejected start removes its own file, which another process may
    have opened a moment before."""
    while True:
        lock = (run_dir / LOCK).open("a+")
        try:
            hold(lock, run_dir)
            if os.fstat(lock.fileno()).st_nlink:
                return lock
        except BaseException:
            lock.close()
            raise
        lock.close()


def supervise(run_dir: Path, args: Supervised) -> int:
    """Runs the driver; returns an exit status. A start that is rejected before the run began leaves no files.

    Raises:
        ConfigError: another supervisor holds the run folder.
    """
    made = [run_dir / name for name in (LOCK, "processes", "logs") if not (run_dir / name).exists()]
    with only_supervisor(run_dir):
        status = Supervisor(run_dir, args.command, args.max_restarts, args.parent, args.cluster_retry).run()
        if status == CONFIG_ERROR_STATUS and not (run_dir / ARGUMENTS).exists():
            for path in made:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return status


def stop_everything(run_dir: Path) -> None:
    """Ends the remaining processes of a driver and every server of the run folder; removes records of ended
    processes."""
    control.kill_marked(run_dir)
    forget_saving(run_dir)
    elsewhere = Thread(target=stop_other_machines, args=(run_dir,))
    elsewhere.start()
    ServerManager(run_dir).stop_all()
    elsewhere.join()
    for record in records.read_records(run_dir):
        if record.role in OWN_ROLES:
            control.terminate(record, grace=0.0)
        if not record.alive():
            records.forget(run_dir, record.name)
    shutil.rmtree(control.scratch_dir(run_dir), ignore_errors=True)
    shutil.rmtree(control.memory_dir(run_dir), ignore_errors=True)


def stop_other_machines(run_dir: Path) -> None:
    """Ends the engines on other machines; reports machines that do not answer."""
    for machine in nodes.stop_servers_on_other_machines(run_dir):
        report(f"{machine} does not answer: its engines stop by themselves within {nodes.LEASE_SECONDS:g} s")


def start_stop_process(run_dir: Path, driver: int | None = None) -> subprocess.Popen[bytes]:
    """Starts a detached process that ends the run after the driver with this pid has exited.

    Ray kills the processes of a stopped job after 3 s, but a driver and its servers may need longer. Ray does not kill
    a process in another session.
    """
    command = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(run_dir), "--stop"]
    command += [] if driver is None else ["--after", str(driver)]
    env = {name: value for name, value in os.environ.items() if name != control.MARK}
    return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, start_new_session=True)


def wait_for_driver(run_dir: Path, pid: int) -> None:
    """Returns when the process has exited, or when a driver would have been killed."""
    began = time.monotonic()
    with contextlib.suppress(psutil.NoSuchProcess):
        driver = psutil.Process(pid)
        while time.monotonic() - began < grace_of(run_dir, pid) + MORE and not records.has_ended(driver):
            time.sleep(0.05)


def holder_of(run_dir: Path) -> int | None:
    """Returns the pid of the last supervisor that locked the run folder."""
    try:
        return int((run_dir / LOCK).read_text())
    except (FileNotFoundError, ValueError):
        return None


def report(message: str) -> None:
    """Prints to standard error. A closed terminal must not keep the supervisor from stopping a run."""
    with contextlib.suppress(OSError):
        print(f"supervisor: {message}", file=sys.stderr, flush=True)


def show_cursor() -> None:
    """Shows the cursor, which the progress bar of a killed driver has hidden."""
    if sys.stdout.isatty():
        with contextlib.suppress(OSError):
            print("\x1b[?25h", end="", flush=True)


@dataclass(frozen=True, kw_only=True)
class Supervised:
    """The command to supervise, or the run to stop."""

    run_dir: Path = flag(REQUIRED, "folder of the run")
    max_restarts: int = flag(20, f"restarts of the driver in {WINDOW:g} s")
    parent: int | None = flag(None, "process id; the run ends when this process exits")
    cluster_retry: float = flag(15.0, "seconds between two attempts after the cluster has changed")
    stop: bool = flag(False, "stop the processes recorded in the run folder, start nothing")
    after: int | None = flag(None, "with --stop: process id of a driver to wait for")
    command: list[str] = flag([], "command of the driver, after --", positional=True)

    def __post_init__(self) -> None:
        if bool(self.command) == self.stop:
            raise ConfigError("give the driver's command after --, or --stop")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(Supervised, argv, "python -m slime.processes.supervisor", __doc__.splitlines()[0])
    run_dir = args.run_dir.resolve()
    # conversations, weights and logs are private to this user, even in a folder that others can read
    os.umask(0o077)
    try:
        if args.after is not None:
            wait_for_driver(run_dir, args.after)
        if args.stop and holder_of(run_dir) == os.getppid():  # it waits for this process
            stop_everything(run_dir)
            return 0
        if not args.stop:
            return supervise(run_dir, args)
        with only_supervisor(run_dir):
            stop_everything(run_dir)
            return 0
    except ConfigError as error:
        report(str(error))
        return CONFIG_ERROR_STATUS


if __name__ == "__main__":
    sys.exit(main())
