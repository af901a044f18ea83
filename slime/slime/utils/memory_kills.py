"""Detects whether the kernel kills processes for lack of memory, since a killed process cannot report it itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))
"""Files with a line `oom_kill COUNT`: of this container, else of the machine."""
SENTENCE = "the kernel has killed a process for lack of memory"


def count(counters: Sequence[Path] = COUNTERS) -> int:
    """Returns the number of kills so far; 0 if the kernel does not report it."""
    for path in counters:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, number = line.partition(" ")
            if name == "oom_kill" and number.isdigit():
                return int(number)
    return 0


class MemoryKills:
    """Kills since the last look, so that a death can be explained."""

    def __init__(self, counters: Sequence[Path] = COUNTERS) -> None:
        self.counters = counters
        self.seen = count(counters)

    def news(self) -> str:
        """`SENTENCE` if there were kills since the last look, else nothing."""
        before, self.seen = self.seen, count(self.counters)
        return SENTENCE if self.seen > before else ""
