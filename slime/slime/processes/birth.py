"""Which process a pid stands for, told by when it was born on a clock that nobody sets."""

from __future__ import annotations

from functools import cache
from pathlib import Path


def birth_of(pid: int) -> str:
    """The machine's boot and the clock ticks from it to the start of a process: the same for its whole life, also when
    somebody sets the clock, which moves what psutil gives as creation time. "": no such process, or no Linux."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{_boot()}/{ticks}"


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
