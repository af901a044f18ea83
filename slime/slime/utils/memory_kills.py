"""Detects kills by the kernel for lack of memory, since a killed process cannot report them itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))
"""Files with a line `oom_kill COUNT`: of this container, or else of the machine."""
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
    """Counts kills since the last check, to explain the death of a process."""

    def __init__(self, counters: Sequence[Path] = COUNTERS) -> None:
        self.counters = counters
        self.seen = count(counters)

    def news(self) -> str:
        """Returns `SENTENCE` if there were kills since the last check, else an empty string."""
        before, self.seen = self.seen, count(self.counters)
        return SENTENCE if self.seen > before else ""
