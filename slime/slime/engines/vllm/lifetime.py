"""vLLM's processes end when our server does: its engine process would outlive a server that was killed."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil

from claw_base.run_folder.records import has_ended

LOOK_SECONDS = 0.5


def end_with(server: int) -> None:
    """To be called in a worker: from now on it, and the engine process above it, end after the process `server`."""
    watched = psutil.Process(server)
    family = [os.getpid()]
    if os.getppid() != server:
        family.insert(0, os.getppid())
    threading.Thread(target=_watch, args=(watched, family), name="lifetime", daemon=True).start()


def _watch(watched: psutil.Process, family: list[int]) -> None:
    while not has_ended(watched):
        time.sleep(LOOK_SECONDS)
    for pid in family:
        os.kill(pid, signal.SIGKILL)
