"""An orderly stop of a driver: saves what no checkpoint contains yet, within a time limit.

The default limit is the time for the current step, plus the checkpoint's size divided by the speed of the disk.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from slime.errors import ClawError, ConfigError
from slime.flags import Arguments
from slime.plan.hardware import DEFAULT, named_gpu
from slime.plan.host import checkpoint_bytes
from slime.plan.of_arguments import plan_of
from slime.processes.saving import ECHO, record_saving
from slime.ray.limits import save_limit
from slime.ray.run import Stopped, TrainingRun

logger = logging.getLogger(__name__)

LEAST = 120.0
"""Minimum, in seconds."""
STEP = 60.0
"""Seconds for the running step and its version."""
MARGIN = 2.0
"""Safety factor: a shared disk may be slower later than when it was measured."""
TRIAL = 64 << 20
"""Bytes written to measure a disk."""


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


def stop_limit(args: Arguments) -> float:
    """Returns --stop-timeout in seconds; by default the time that a checkpoint of this model needs in the checkpoint
    folder.

    It is at most --save-timeout. Trainers on the CPU, whose models are small, get `LEAST`.
    """
    if args.stop_timeout is not None:
        return args.stop_timeout or math.inf
    try:
        plan = plan_of(args, args.train_world_size, named_gpu(DEFAULT))
    except ConfigError:  # a model whose shape is unknown
        return LEAST
    if plan is None:
        return LEAST
    size, speed = checkpoint_bytes(plan.trainer), disk_speed(Path(args.save))
    writing = min(MARGIN * size / speed, save_limit(args) or math.inf)
    limit = max(LEAST, STEP + writing)
    logger.info(
        "a stop may take %.0f s (--stop-timeout): a checkpoint has %.1f GB, %s writes %.0f MB/s; a program that stops "
        "this run must wait as long", limit, size / 1e9, args.save, speed / 1e6,
    )  # fmt: skip
    return limit


def disk_speed(folder: Path, size: int = TRIAL) -> float:
    """Returns the speed of a folder's disk in bytes a second, measured with a temporary file; infinity if the file
    cannot be written."""
    trial = folder / f".speed-{os.getpid()}"
    block = os.urandom(1 << 20)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with trial.open("wb") as file:
            for _ in range(size // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return size / max(time.monotonic() - began, 1e-6)
    except OSError:
        return math.inf
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)
