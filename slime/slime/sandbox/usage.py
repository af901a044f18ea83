"""Memory and files used by the processes of a sandbox, read from its /proc and file systems."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
SHARED = ("/dev/zero (deleted)", "/SYSV", "/memfd:")
"""Names in /proc of mappings of memory that belongs to several processes."""
SMALLEST_SHARED = 4 << 20
"""Smallest size that a shared mapping counts: a program can fill it and unmap all but a page between two checks."""
FILE_BYTES = 2048
"""Smallest size that a file in memory counts of `disk_bytes`: an empty one also takes memory of the kernel."""


@dataclass(frozen=True)
class Mapped:
    """One process.

    Attributes:
        numbers: its /proc/PID/statm at the last check; while they are unchanged, the other values most likely are too.
        private: resident bytes that no other process shares.
        shared: size by inode, in bytes, of shared memory that it maps.
        removed: size of mapped files that have been deleted, by device (major:minor in hex) and inode.
    """

    numbers: bytes
    private: int
    shared: dict[str, int]
    removed: dict[tuple[str, str], int]


class Usage:
    """Usage of one sandbox. Its methods return the readable values; a process that ends meanwhile counts as 0."""

    def __init__(self, first: int, in_memory: Sequence[str]) -> None:
        """`first` is the id of the first process in the sandbox; `in_memory` lists the sandbox's folders in
        memory."""
        self.root, self.in_memory = Path(f"/proc/{first}/root"), tuple(in_memory)
        self._is_set_up = False
        self._mapped: dict[str, Mapped] = {}
        self._shared: dict[str, int] = {}

    @property
    def is_set_up(self) -> bool:
        """Returns whether the first process is in the sandbox's own file system. Before that, its root and /proc are
        those of this machine, whose processes and files would be counted for the sandbox."""
        if not self._is_set_up:
            with contextlib.suppress(OSError):
                self._is_set_up = (self.root / "proc").stat().st_dev != os.stat("/proc").st_dev
        return self._is_set_up

    def processes(self) -> list[str]:
        """Returns the ids of all processes in the sandbox, as seen inside."""
        if not self.is_set_up:
            return []
        with contextlib.suppress(OSError):
            return [name for name in os.listdir(self.root / "proc") if name.isdigit()]
        return []

    def memory(self, fresh: bool = True) -> int:
        """Returns the resident and shared bytes of all processes; files in memory do not count.

        Args:
            fresh: False: reuse the shared memory of processes whose sizes have not changed since the last check.
        """
        self._look(fresh)
        sizes: dict[str, int] = {}
        for mapped in self._mapped.values():
            for inode, size in mapped.shared.items():
                sizes[inode] = max(size, sizes.get(inode, SMALLEST_SHARED), self._shared.get(inode, 0))
        self._shared = sizes
        return sum(mapped.private for mapped in self._mapped.values()) + sum(sizes.values())

    def _look(self, fresh: bool) -> None:
        mapped = {}
        for name in self.processes():
            with contextlib.suppress(OSError, ValueError, IndexError):
                numbers = (self.root / "proc" / name / "statm").read_bytes()
                old = self._mapped.get(name)
                if old is None or fresh or old.numbers != numbers:
                    old = self._process(name, numbers)
                mapped[name] = old
        self._mapped = mapped

    def _process(self, name: str, numbers: bytes) -> Mapped:
        resident, of_files = (int(word) for word in numbers.split()[1:3])
        shared: dict[str, int] = {}
        removed: dict[tuple[str, str], int] = {}
        for device, inode, end, path in self._mappings(name):
            if path.startswith(SHARED):
                shared[inode] = max(end, shared.get(inode, 0))
            elif path.endswith(" (deleted)") and not path.startswith(self.in_memory):
                removed[device, inode] = max(end, removed.get((device, inode), 0))
        return Mapped(numbers, (resident - of_files) * PAGE, shared, removed)

    def _mappings(self, name: str) -> Iterator[tuple[str, str, int, str]]:
        """Yields device, inode, end within the file in bytes and path of each mapping of a removed file."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.root / "proc" / name / "maps").read_text(errors="replace").splitlines():
                if " (deleted)" in line or "/SYSV" in line:
                    place, _, offset, device, inode, path = line.split(None, 5)
                    start, end = (int(word, 16) for word in place.split("-"))
                    yield device, inode, int(offset, 16) + end - start, path

    def removed(self, device: int) -> int:
        """Returns the bytes of deleted files on a device that processes have open or mapped."""
        removed: dict[str, int] = {}
        self._look(fresh=False)
        for name in self._mapped:
            with contextlib.suppress(OSError):
                for entry in os.scandir(self.root / "proc" / name / "fd"):
                    with contextlib.suppress(OSError):
                        about = os.stat(entry.path)
                        if stat.S_ISREG(about.st_mode) and not about.st_nlink and about.st_dev == device:
                            removed[str(about.st_ino)] = about.st_blocks * 512
        number = f"{os.major(device):02x}:{os.minor(device):02x}"
        for mapped in self._mapped.values():
            for (at, inode), size in mapped.removed.items():
                if at == number:
                    removed.setdefault(inode, size)
        return sum(removed.values())

    def too_many_files(self, most_bytes: int) -> str | None:
        """Returns the folder in memory that has more files than its size allows; None if there is none."""
        if not self.is_set_up:
            return None
        for place in self.in_memory:
            with contextlib.suppress(OSError):
                about = os.statvfs(f"{self.root}{place}")
                if (about.f_files - about.f_ffree) * FILE_BYTES > most_bytes:
                    return place
        return None
