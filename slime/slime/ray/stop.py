"""An orderly stop of a driver: saves what no checkpoint contains yet, within a time limit."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from slime.errors import ClawError
from slime.processes.saving import ECHO, record_saving
from slime.ray.run import Stopped, TrainingRun
from slime.ray.stop_limit import LEAST, stop_limit

logger = logging.getLogger(__name__)


class OrderlyStop:
    """Stops a driver after SIGTERM or SIGINT, while its servers continue.

    If a checkpoint contains all training, the driver exits at once: every step is a transaction. Otherwise the
    current step is finished, its version goes live and a checkpoint is written, within --stop-timeout. A second
    signal of the same kind ends the driver at once.
    """

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        timeout: float | None = run.args.stop_timeout
        self.limit = LEAST if timeout is None else timeout or math.inf
        self.number: int | None = None
        self.began = 0.0

    def watch(self) -> None:
        """Installs the signal handlers. A thread measures the default limit, so that a slow disk does not delay the
        start."""
        threading.Thread(target=self.measure, name="stop limit", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.signalled)

    def measure(self) -> None:
        """Estimates how long a checkpoint takes here, unless --stop-timeout is set."""
        self.limit = stop_limit(self.run.args)

    def signalled(self, number: int, frame: object) -> None:
        if self.number is None and self.run.unsaved():
            self.number, self.began = number, time.monotonic()
            record_saving(self.run.run_dir, self.limit)
            self.run.stopping = True
            threading.Thread(target=self.end_in_time, name="stop", daemon=True).start()
        elif self.number is None or (number == self.number and time.monotonic() - self.began > ECHO):
            self.end(number)

    def end_in_time(self) -> None:
        """Logs the stop and ends the driver after the limit, even if its main thread hangs. It runs in a thread because
        a signal handler must not log."""
        logger.info(
            "stopping: a checkpoint is written first%s; send the same signal again to stop at once",
            f", within {self.limit:g} s" if self.limit < math.inf else "",
        )
        if self.limit < math.inf:
            time.sleep(self.limit)
            self.end_without(f"it was not written within {self.limit:g} s (--stop-timeout)")

    def guard(self, train: Callable[[TrainingRun, int], None], num_rollout: int) -> None:
        """Runs the loop; after a stop, saves and exits."""
        try:
            train(self.run, num_rollout)
        except Stopped:
            self.save()
        except ClawError as error:
            if self.number is None:
                raise
            self.end_without(str(error))

    def save(self) -> NoReturn:
        try:
            self.run.save_now()
        except Exception as error:  # the process exits after any error of a library or an engine
            self.end_without(str(error) or type(error).__name__)
        logger.info(
            "a checkpoint contains version %d: the next start resumes from it",
            self.run.publisher.live.version,
        )
        self.end()

    def end_without(self, reason: str) -> NoReturn:
        logger.warning(
            "stopped without a checkpoint: %s. The next start repeats the training since the last one", reason
        )
        self.end()

    def end(self, number: int | None = None) -> NoReturn:
        """Exits the process; Ray's processes end with it. Writes the metrics of a live version first; those of a
        version in flight stay on disk for the next driver."""
        try:
            self.run.log_at_end()
            self.run.runtime.end_agents()
        finally:
            os._exit(128 + (number or self.number or signal.SIGTERM))
