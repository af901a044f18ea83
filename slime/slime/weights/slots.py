"""Shared memory through which weights go from the trainer's first rank to the engines on its machine. Imports no
torch.

A slot is a Hugging Face folder in shared memory (`slime.processes.control.memory_dir`) that is overwritten in place,
so that its memory is reused. Each slot has a file lock (`flock`), which the kernel releases when its holder ends for
any reason. The trainer holds the lock exclusively while it writes. Engines whose models use the slot's memory hold it
shared. So memory in use is never overwritten. If all slots are in use, the trainer creates another.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

from claw_base.files import private_folder
from slime.errors import EngineError

LOCK = "slot.lock"
COMPLETE = "digests.json"
"""The file that is written last; it marks a slot as complete."""


def is_slot(folder: Path) -> bool:
    return (folder / LOCK).is_file()


@contextmanager
def free_slot(slots: Path) -> Iterator[Path]:
    """Locks and yields a free slot to overwrite, or a new one. Readers reject it until it is complete."""
    private_folder(slots)
    for number in count():
        slot = slots / f"slot-{number}"
        slot.mkdir(mode=0o700, exist_ok=True)
        with open(slot / LOCK, "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            (slot / COMPLETE).unlink(missing_ok=True)
            yield slot
            return


def hold(slot: Path) -> IO[bytes]:
    """Protects a slot from being overwritten until the returned file is closed, or its process has ended.

    Raises:
        EngineError: the slot is being written or is incomplete.
    """
    lock = open(slot / LOCK, "rb")  # noqa: SIM115 (the caller closes it)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise EngineError(f"{slot} is being overwritten") from None
    if not (slot / COMPLETE).is_file():
        lock.close()
        raise EngineError(f"{slot} is incomplete")
    return lock


def copy_slot(slot: Path, folder: Path) -> None:
    """Copies the version in a slot to a folder. Raises EngineError, as `hold`."""
    with hold(slot):
        for file in sorted(slot.iterdir()):
            if file.name != LOCK:
                shutil.copyfile(file, folder / file.name)
