"""How many threads to compute with on a machine that others use too.

OpenMP divides a computation into equal parts and waits for the slowest. A thread that shares its processor with another
process takes twice as long, so one thread too many more than halves the speed (SmolLM2-135M with one busy trainer, two
processors: 12 tokens/s with one thread, 5 with two; alone: 12 and 20).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

import psutil

CONTAINER = Path("/sys/fs/cgroup")
EVERY = 0.2
"""Seconds between two measurements; the kernel counts in units of 0.01."""
NOISE = 0.3
"""Processors that short-lived work may use before one counts as busy."""


class Clock(Protocol):
    """Seconds since some start: of the wall, of this process on processors, and of usable processors without work."""

    def __call__(self) -> tuple[float, float, float]: ...


def usable_cpus() -> int:
    """Returns the number of CPUs that this process may use, also by the quota of its container."""
    there = len(_allowed()) or os.cpu_count() or 1
    quota = _quota()
    return there if quota is None else max(1, min(there, int(quota)))


def seconds() -> tuple[float, float, float]:
    """See `Clock`."""
    wall, own = time.monotonic(), time.process_time()
    quota = _quota()
    if quota is not None:
        return wall, own, quota * wall - _used_by_container()
    each, allowed = psutil.cpu_times(percpu=True), _allowed()
    usable = [times for number, times in enumerate(each) if not allowed or number in allowed]
    return wall, own, sum(times.idle + getattr(times, "iowait", 0.0) for times in usable)


def _allowed() -> set[int]:
    """Returns the numbers of the CPUs that the scheduler may give to this process; empty if the system has no such
    limit."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _quota() -> float | None:
    """Returns the CPUs that a container may use (cgroup v2, cpu.max: "200000 100000" is two); None: no limit."""
    try:
        most, period = (CONTAINER / "cpu.max").read_text().split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


def _used_by_container() -> float:
    """Returns the processor seconds of all processes of the container."""
    for line in (CONTAINER / "cpu.stat").read_text().splitlines():
        if line.startswith("usage_usec "):
            return int(line.split()[1]) / 1e6
    return 0.0


class IdleProcessors:
    """Counts the processors that this process uses or that are idle.

    Args:
        least: threads that this process always may use.
        most: threads that it uses on an idle machine.
    """

    def __init__(self, least: int, most: int | None = None, clock: Clock = seconds) -> None:
        self._least, self._most = least, max(least, usable_cpus() if most is None else most)
        self._clock = clock
        self._last = clock()
        self._threads = least

    def count(self) -> int:
        """Returns how many threads the next computation should use: as many as there were processors for since the
        last measurement. Cheap enough for every step."""
        if time.monotonic() - self._last[0] < EVERY:
            return self._threads
        now = self._clock()
        wall, own, idle = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        self._threads = min(self._most, max(self._least, int((own + idle) / wall + NOISE)))
        return self._threads
