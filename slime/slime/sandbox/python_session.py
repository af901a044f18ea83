"""A sandboxed Python session that keeps the definitions of its snippets.

Sandboxes are started in advance, so that a fresh one is available at once; each is used for only one session.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from slime.errors import SandboxError
from slime.sandbox.box import LOST, Box, require_sandbox
from slime.sandbox.command import box_python
from slime.sandbox.limits import Limits

SIGNALS = {137: "it was killed", 139: "it crashed (segmentation fault)", 152: "it used up its processor time"}


@dataclass(frozen=True)
class Ran:
    """The result of a snippet.

    Attributes:
        output: printed text, and the value of the last line if it is an expression.
        error: one line about the code's exception or an exceeded limit, or None.
        restarted: the interpreter was replaced, and earlier definitions are lost.
        seconds: duration of the call.
    """

    output: str
    error: str | None
    restarted: bool
    seconds: float

    def text(self) -> str:
        """Returns output and error as text for a model."""
        parts = [self.output.rstrip("\n"), f"Error: {self.error}" if self.error else ""]
        return "\n".join(part for part in parts if part)


class PythonSession:
    """Starts its sandbox at the first snippet. Use it from one thread at a time, and close it."""

    def __init__(self, limits: Limits | None = None) -> None:
        """Creates a session. Raises ConfigError if there is no sandbox."""
        require_sandbox()
        self.limits = limits or Limits()
        self.box: Box | None = None
        self.number = 0

    def start(self) -> None:
        """Starts the sandbox if there is none. Raises SandboxError if it did not start."""
        if self.box is None:
            self.box = take(self.limits)

    def run(self, code: str, seconds: float = 10.0) -> Ran:
        """Runs a snippet for at most `seconds`.

        Raises:
            SandboxError: the sandbox did not start, or was killed from outside.
        """
        self.start()
        box = self.box
        assert box is not None
        self.number += 1
        order = code.encode("utf-8", "replace")
        began = box.busy_since = time.monotonic()
        try:
            box.send(b"%d %d\n" % (self.number, len(order)) + order)
            data = box.read_until(_complete, seconds, 16 * self.limits.output_chars + 4096)
        except (BrokenPipeError, ValueError):  # it has exited, or another thread closed it
            data = None
        duration = time.monotonic() - began
        answer = _answer(data, self.number)
        if answer is not None and box.over is None:
            box.busy_since = None
            return Ran(answer[0], answer[1], restarted=False, seconds=duration)
        reason = _reason(box, data is not None, duration >= seconds, seconds)
        lost = box.lost()
        self.close()
        if lost:
            raise SandboxError(LOST)
        return Ran("", f"{reason}; the interpreter was restarted, its variables are gone", True, duration)

    def close(self) -> None:
        """Ends the sandbox; the next snippet starts another."""
        if self.box is not None:
            self.box.close()
            self.box = None

    def __enter__(self) -> PythonSession:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def _reason(box: Box, answered: bool, late: bool, seconds: float) -> str:
    code = box.exit_code(0.0 if late or answered else 1.0)
    if over := box.over:
        return over
    if answered or (code is None and not late):
        return "it disturbed the interpreter's own channel"
    if code is None:
        return f"it ran longer than {seconds:g} s"
    return SIGNALS.get(code, f"it ended the interpreter (exit code {code})")


def _head(data: bytes) -> tuple[int, int, int] | None:
    """Returns number and lengths of an answer of the worker; None for other output."""
    words = data.partition(b"\n")[0].split()
    try:
        number, output, error = (int(word) for word in words)
    except ValueError:
        return None
    return number, max(output, 0), error


def _complete(data: bytes) -> bool:
    if b"\n" not in data:
        return False
    head = _head(data)
    return head is None or len(data) >= data.index(b"\n") + 1 + head[1] + max(head[2], 0)


def _answer(data: bytes | None, number: int) -> tuple[str, str | None] | None:
    """Returns output and error; None if the data is not the worker's answer to this snippet."""
    head = _head(data) if data is not None else None
    if data is None or head is None or head[0] != number:
        return None
    body = data[data.index(b"\n") + 1 :]
    if len(body) != head[1] + max(head[2], 0):
        return None
    error = None if head[2] < 0 else body[head[1] :].decode(errors="replace")
    return body[: head[1]].decode(errors="replace"), error


WORKER = Path(__file__).with_name("python_worker.py")
START_SECONDS = 60.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
IN_ADVANCE = 2  # sandboxes started in advance for each set of limits; an idle one has about 8 MiB
KINDS = 2  # sets of limits with sandboxes in advance: the most recently requested ones
_starter = ThreadPoolExecutor(IN_ADVANCE, thread_name_prefix="sandbox-ahead")
_lock = threading.Lock()
_ready: OrderedDict[Limits, deque[Future[Box]]] = OrderedDict()


os.register_at_fork(after_in_child=_ready.clear)  # a fork must not use the parent's sandboxes


def take(limits: Limits) -> Box:
    """Returns a sandbox with a waiting Python; others are started for later sessions.

    Raises:
        SandboxError: the sandbox did not start.
    """
    with _lock:
        waiting = _ready.setdefault(limits, deque())
        _ready.move_to_end(limits)
        ready = waiting.popleft() if waiting else None
        while len(waiting) < IN_ADVANCE:
            waiting.append(_starter.submit(start, limits))
        dropped = _ready.popitem(last=False)[1] if len(_ready) > KINDS else ()
    for one in dropped:
        one.add_done_callback(_unused)
    if ready is not None:
        with contextlib.suppress(SandboxError):
            box = ready.result()
            if box.exit_code() is None:
                return box
            box.close()
    return start(limits)


def start(limits: Limits) -> Box:
    """Returns a separate sandbox. Raises SandboxError."""
    python, packages = _python()
    program = [python, "-I", "-S", "-c", WORKER.read_text(), str(limits.output_chars)]
    with open(os.memfd_create("output"), "wb", buffering=0) as output:
        box = Box(program, limits, packages, ONE_THREAD, errors=output.fileno())
    if box.read_line(START_SECONDS, 100) != b"0 0 -1":
        code = box.exit_code()
        box.close()
        raise SandboxError(f"Python did not start in its sandbox (exit code {code})")
    return box


def close_all() -> None:
    """Ends the waiting sandboxes."""
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
