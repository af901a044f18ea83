"""Ends boxes whose processes together have more memory resident, or more in their workspace, than they may.

Limits of the kernel without cgroups are those of one process; a cgroup needs rights that neither a user nor a container
has everywhere, and quotas of disks more of them. So a thread looks, while code in a box may run. Where a box has a cgroup
the kernel limits its memory, and may kill one process of many; then the thread ends the others.
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

from slime.agents.sandbox.folders import TooLarge

if TYPE_CHECKING:
    from slime.agents.sandbox.box import Box

INTERVAL = 0.05  # seconds; a core fills some 100 MiB of memory in this time
DISK_EVERY = 5  # intervals; a disk is filled slower, and looking costs more
DISK_SHARE = 10  # times what a look took, before the next: a large repository is looked at less often
_boxes: weakref.WeakSet[Box] = weakref.WeakSet()
_lock = threading.Lock()
_threads: list[threading.Thread] = []
_next_look: weakref.WeakKeyDictionary[Box, float] = weakref.WeakKeyDictionary()


def watch(box: Box) -> None:
    """Has the box looked at while it is busy."""
    with _lock:
        _boxes.add(box)
        if not _threads or not _threads[0].is_alive():
            _threads[:] = [threading.Thread(target=_run, name="sandbox-watcher", daemon=True)]
            _threads[0].start()


def _run() -> None:
    round_ = 0
    while True:
        time.sleep(INTERVAL)
        round_ += 1
        long_ago = time.monotonic() - INTERVAL / 2
        with _lock:
            busy = [box for box in _boxes if box.busy_since is not None and box.busy_since < long_ago]
        if not busy:
            continue
        children = children_of_all() if any(box.group is None for box in busy) else {}
        for box in busy:
            reason = _over(box, children, look_at_disk=round_ % DISK_EVERY == 0)
            if reason is not None:
                box.end_over(reason)


def _over(box: Box, children: dict[int, list[int]], look_at_disk: bool) -> str | None:
    """Which limit the box is over, in a sentence for the model; None for none."""
    if box.process.poll() is not None:
        return None
    if box.group is None and resident(box.process.pid, children) > box.limits.memory:
        return f"its processes together used more than {box.limits.memory >> 20} MiB of memory"
    if reason := box.over:
        return reason
    began = time.monotonic()
    if look_at_disk and box.workspace is not None and began >= _next_look.get(box, 0.0):
        try:
            box.workspace.check_size()
        except TooLarge as error:
            return f"its files in {box.workspace.place} are too many: {error}"
        except OSError:  # the workspace is being closed
            return None
        _next_look[box] = time.monotonic() + DISK_SHARE * (time.monotonic() - began)
    return None


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
