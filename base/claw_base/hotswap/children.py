"""Forks, exit statuses and signals of a supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

STOP_SECONDS = 7.0
PR_SET_PDEATHSIG = 1


def fork(run: Callable[[], int], *, ends_with_us: bool) -> int:
    """Returns the pid of a child that runs `run` and exits with its result."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _reset_signals(parent if ends_with_us else None)
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _reset_signals(parent: int | None) -> None:
    """Drops the supervisor's signal handlers in a fork. The supervisor handles Ctrl-C, which a terminal sends to all."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if parent is not None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(0)


def stop(pids: Sequence[int]) -> None:
    """Sends SIGTERM, and SIGKILL after `STOP_SECONDS`."""
    for pid in pids:
        _send(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline and not all(map(has_ended, pids)):
        time.sleep(0.02)
    for pid in pids:
        _send(pid, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Returns whether a process has exited, a child or not; a zombie counts as exited."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def exit_status(pid: int) -> int:
    """Returns the exit status of a child that has exited or is about to; negative: the signal that ended it; 0: the
    process is not a child."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


@contextlib.contextmanager
def signals(received: list[int]) -> Iterator[socket.socket]:
    """Appends the signals that a supervisor handles to `received`; the yielded socket becomes readable with each."""
    wake, write = socket.socketpair()
    write.setblocking(False)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in numbers}
    old = signal.set_wakeup_fd(write.fileno())
    try:
        yield wake
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        wake.close()
        write.close()


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
