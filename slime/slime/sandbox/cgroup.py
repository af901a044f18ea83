"""Limits the memory of all processes of a sandbox together, in a separate cgroup if this process may create one.
Files in the sandbox's /tmp count too. If no cgroup can be created, the watcher measures the memory instead."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from slime.sandbox.limits import Limits

PREFIX = "slime-box-"
_numbers = itertools.count()


@dataclass(frozen=True)
class Groups:
    """A cgroup folder in which this process creates cgroups with the memory controller."""

    version: int
    folder: Path

    def make(self, most: int) -> Group:
        """Returns a new cgroup of at most `most` bytes. Raises OSError."""
        group = Group(
            self.version, self.folder / f"{PREFIX}{os.getpid()}-{birth(os.getpid())}-{next(_numbers)}"
        )
        group.folder.mkdir()
        try:
            (group.folder / ("memory.max" if self.version == 2 else "memory.limit_in_bytes")).write_text(
                str(most)
            )
            swap = (
                ("memory.swap.max", "0") if self.version == 2 else ("memory.memsw.limit_in_bytes", str(most))
            )
            with contextlib.suppress(OSError):  # a kernel may not account swap
                (group.folder / swap[0]).write_text(swap[1])
        except OSError:
            group.remove()
            raise
        return group

    def sweep(self) -> None:
        """Removes empty cgroups of processes that have exited."""
        for group in self.folder.glob(f"{PREFIX}*"):
            pid, start_time = group.name.removeprefix(PREFIX).split("-")[:2]
            if birth(int(pid)) != int(start_time):
                with contextlib.suppress(OSError):
                    group.rmdir()


@dataclass(frozen=True)
class Group:
    """One sandbox's cgroup."""

    version: int
    folder: Path

    def joined(self, command: list[str]) -> list[str]:
        """Returns the command, preceded by one that joins the cgroup."""
        procs = str(self.folder / "cgroup.procs")
        return ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', procs, *command]

    def over(self) -> bool:
        """Returns whether the kernel has killed one of its processes for lack of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
            return counts.get("oom_kill", "0") != "0"
        return False

    def remove(self) -> None:
        """Removes the cgroup if its last process has ended."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def make_group(limits: Limits) -> Group | None:
    """Returns a cgroup for one sandbox; None if the watcher must measure instead."""
    groups = own_groups()
    with contextlib.suppress(OSError):
        return groups.make(limits.memory + limits.disk_bytes) if groups else None
    return None


@functools.cache
def own_groups() -> Groups | None:
    """Returns the folder in which this process may create cgroups with a memory limit, tested by creating one; None if
    there is none."""
    text, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    for groups in candidates(text, mounts):
        try:
            groups.make(1 << 30).remove()
        except OSError:
            continue
        groups.sweep()
        return groups
    return None


def candidates(memberships: str, mounts: str) -> list[Groups]:
    """Returns the folders of this process's own cgroup, from /proc/self/cgroup and /proc/self/mountinfo."""
    groups = []
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        version = 2 if not controllers else 1
        if version == 2 or "memory" in controllers.split(","):
            groups += [Groups(version, folder) for folder in _mounted(version, path, mounts)]
    return groups


def _mounted(version: int, path: str, mounts: str) -> list[Path]:
    folders = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        is_kind = kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options.split(",")
        contains_path = path == root or root == "/" or path.startswith(f"{root}/")
        if is_kind and contains_path:
            folders.append(Path(place) / path.removeprefix(root if root != "/" else "").lstrip("/"))
    return folders


def birth(pid: int) -> int:
    """Returns the start time of a process in ticks since boot; -1 if there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return int(text[text.rindex(b")") :].split()[20])
    return -1
