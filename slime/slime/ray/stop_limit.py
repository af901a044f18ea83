"""Time limit for stopping a run: for its step, and for a checkpoint by its bytes and the speed of the disk."""

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
"""Seconds that any run has."""
STEP = 60.0
"""Seconds for the step that runs, and for its version."""
MARGIN = 2.0
"""A disk that others use is slower than it was when it was measured."""
TRIAL = 64 << 20
"""Bytes that are written to measure a disk."""


def stop_limit(args: Arguments) -> float:
    """Seconds of --stop-timeout; without it, what a checkpoint of this model needs in the folder of the checkpoints.

    That is --save-timeout at most. Trainers on the CPU, whose models are small, have `LEAST`."""
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
        "a stop may take %.0f s (--stop-timeout): a checkpoint has %.1f GB, %s takes %.0f MB/s; what ends this run must "
        "wait as long", limit, size / 1e9, args.save, speed / 1e6,
    )  # fmt: skip
    return limit


def disk_speed(folder: Path, size: int = TRIAL) -> float:
    """Bytes a second that reach the disk of a folder, by a file that is removed again; infinite if none is written."""
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
