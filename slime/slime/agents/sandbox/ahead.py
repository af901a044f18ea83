"""Boxes with a Python in them that are started before somebody asks, so that a fresh one is there at once.

Each box is used by one session and never again.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections import OrderedDict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from slime.agents.sandbox.box import Box
from slime.agents.sandbox.command import box_python
from slime.agents.sandbox.limits import Limits
from slime.errors import SandboxError

WORKER = Path(__file__).with_name("python_worker.py")
START_SECONDS = 60.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
AHEAD = 2  # boxes of the same limits; an idle one has some 8 MiB
KINDS = 2  # of limits that have boxes ahead: those asked for last
_starter = ThreadPoolExecutor(AHEAD, thread_name_prefix="sandbox-ahead")
_lock = threading.Lock()
_ready: OrderedDict[Limits, deque[Future[Box]]] = OrderedDict()


os.register_at_fork(after_in_child=_ready.clear)  # they are the parent's


def take(limits: Limits) -> Box:
    """A box whose Python waits for its first snippet; others are started for who comes next.

    Raises:
        SandboxError: it did not come up.
    """
    with _lock:
        waiting = _ready.setdefault(limits, deque())
        _ready.move_to_end(limits)
        mine = waiting.popleft() if waiting else None
        while len(waiting) < AHEAD:
            waiting.append(_starter.submit(start, limits))
        old = _ready.popitem(last=False)[1] if len(_ready) > KINDS else ()
    for one in old:
        one.add_done_callback(_unused)
    if mine is not None:
        with contextlib.suppress(SandboxError):
            box = mine.result()
            if box.exit_code() is None:
                return box
            box.close()
    return start(limits)


def start(limits: Limits) -> Box:
    """A box of its own. Raises SandboxError."""
    python, packages = _python()
    program = [python, "-I", "-S", "-c", WORKER.read_text(), str(limits.output_chars)]
    box = Box(program, limits, packages, ONE_THREAD)
    if box.read_line(START_SECONDS, 100) != b"0 0 -1":
        code = box.exit_code()
        box.close()
        raise SandboxError(f"Python did not start in its sandbox (exit code {code})")
    return box


def close_all() -> None:
    """Ends the boxes that wait."""
    with _lock:
        left = [one for waiting in _ready.values() for one in waiting]
        _ready.clear()
    for one in left:
        with contextlib.suppress(SandboxError):
            one.result().close()


atexit.register(close_all)


def _unused(one: Future[Box]) -> None:
    with contextlib.suppress(SandboxError):
        one.result().close()


@functools.cache
def _python() -> tuple[str, dict[Path, str]]:
    return box_python()
