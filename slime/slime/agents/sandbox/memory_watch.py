"""Ends boxes whose processes together have more memory resident than they may.

Limits of the kernel without cgroups are those of one process; a cgroup needs rights that neither a user nor a container
has everywhere. So a thread looks, while a call lasts long enough to fill memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime.agents.sandbox.box import Box

INTERVAL = 0.05  # seconds; a core fills some 100 MiB in this time
_boxes: weakref.WeakSet[Box] = weakref.WeakSet()
_lock = threading.Lock()
_threads: list[threading.Thread] = []


def watch(box: Box) -> None:
    """Has the box looked at while it is busy."""
    with _lock:
        _boxes.add(box)
        if not _threads or not _threads[0].is_alive():
            _threads[:] = [threading.Thread(target=_run, name="sandbox-memory", daemon=True)]
            _threads[0].start()


def _run() -> None:
    while True:
        time.sleep(INTERVAL)
        long_ago = time.monotonic() - INTERVAL / 2
        with _lock:
            busy = [box for box in _boxes if box.busy_since is not None and box.busy_since < long_ago]
        if not busy:
            continue
        children = children_of_all()
        for box in busy:
            if box.process.poll() is None and resident(box.process.pid, children) > box.limits.memory:
                box.over_memory = True
                box.process.kill()


def children_of_all() -> dict[int, list[int]]:
    """Process ids by that of their parent. One whose parent has ended is a child of the first process of its box."""
    found: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path(f"/proc/{name}/stat").read_bytes()
                found[int(text[text.rindex(b")") :].split()[2])].append(int(name))
    return found


def resident(root: int, children: dict[int, list[int]]) -> int:
    """Bytes that a process and all below it have resident, without what they share with files."""
    total, left, page = 0, [root], os.sysconf("SC_PAGE_SIZE")
    while left:
        pid = left.pop()
        left += children.get(pid, [])
        with contextlib.suppress(OSError, ValueError, IndexError):
            numbers = Path(f"/proc/{pid}/statm").read_bytes().split()
            total += (int(numbers[1]) - int(numbers[2])) * page
    return total
