"""Compares answers by algebra in worker processes with a time limit, because some expressions never
finish."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from slime.errors import RewardError

logger = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("grader_worker.py")
START_SECONDS = 60.0
ANSWER_SECONDS = 12.0  # more than the worker's own limits, three times 3 s
LONGEST = 2000
"""Maximum number of characters; a longer answer counts as wrong."""


class _Worker:
    """One worker process; used by one thread at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
        )
        if self._read(START_SECONDS) is None:
            self.close()
            raise RewardError("the answer grader could not start; check that math-verify is installed")

    def same(self, answer: str, label: str) -> bool | None:
        """Returns whether both are equal; None if the process timed out and was killed."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"answer": answer, "label": label}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._read(ANSWER_SECONDS)
        return None if line is None else bool(json.loads(line)["same"])

    def _read(self, seconds: float) -> bytes | None:
        """Returns a complete line; None after the time-out or the process's exit."""
        assert self.process.stdout is not None
        stream, line, until = self.process.stdout.fileno(), b"", time.monotonic() + seconds
        ready = select.poll()  # select() does not support descriptors above 1,023, and a busy server has more
        ready.register(stream, select.POLLIN)
        while not line.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not ready.poll(left * 1000):
                return None
            part = os.read(stream, 65536)
            if not part:
                return None
            line += part
        return line

    def close(self) -> None:
        self.process.kill()
        with contextlib.suppress(BrokenPipeError), self.process:
            pass  # leaving closes the pipes and waits for the process


class Grader:
    """Up to `size` worker processes, started on demand; they exit with this process."""

    def __init__(self, size: int) -> None:
        self.idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(size):
            self.idle.put(None)

    def same(self, answer: str, label: str) -> bool:
        """Returns whether both are equal; an answer that cannot be decided in time counts as wrong.

        Raises:
            RewardError: no worker could be started.
        """
        if len(answer) > LONGEST:
            return False
        worker = self.idle.get()
        try:
            if worker is None or worker.process.poll() is not None:
                worker = _Worker()
            equal = worker.same(answer, label)
            if equal is None:
                logger.warning("%.80r could not be compared with %.80r and counts as wrong", answer, label)
                worker.close()
                worker = None
            return bool(equal)
        finally:
            self.idle.put(worker)

    def close(self) -> None:
        """Stops the idle workers."""
        while not self.idle.empty():
            worker = self.idle.get()
            if worker is not None:
                worker.close()


_lock = threading.Lock()
_graders: list[Grader] = []


def grader() -> Grader:
    """Returns this process's grader."""
    with _lock:
        if not _graders:
            _graders.append(Grader(max(1, min(4, (os.cpu_count() or 1) // 2))))
        return _graders[0]
