"""Time limit for stopping a run: time for its step, plus the checkpoint's size divided by the speed of the disk."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from pathlib import Path

from slime.errors import ConfigError
from slime.flags import Arguments
from slime.plan.hardware import DEFAULT, named_gpu
from slime.plan.host import checkpoint_bytes
from slime.plan.of_arguments import plan_of
from slime.ray.limits import save_limit

logger = logging.getLogger(__name__)

LEAST = 120.0
"""Minimum, in seconds."""
STEP = 60.0
"""Seconds for the running step and its version."""
MARGIN = 2.0
"""Safety factor: a shared disk may be slower later than when it was measured."""
TRIAL = 64 << 20
"""Bytes written to measure a disk."""


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
