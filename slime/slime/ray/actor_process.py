"""Sets up an actor's process: log file, process record, niceness, and the variables of torch's GPU allocator.

Expandable segments fragment less when batch sizes change, so trainers use them. Engines do not: they manage one large
block, and expandable segments can neither be shared by CUDA IPC nor released by SGLang.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import ParamSpec, TypeVar

from claw_base.run_folder import records
from slime.errors import ClawError
from slime.processes import control

P = ParamSpec("P")
R = TypeVar("R")
Actor = TypeVar("Actor", bound=type)

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Names of the same torch setting; torch reads either variable."""
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
"""Megatron's overlap needs a single queue to the GPU; an engine with several streams would block itself with
one."""
EXPANDABLE = "expandable_segments:True"


def enter(run_dir: Path, name: str, role: str | None = None, nice: int = 0) -> None:
    """Sets up the calling actor process.

    Args:
        run_dir: run folder; output goes to `logs/NAME.log` in it.
        name: name of the log, and of the process record if `role` is set.
        role: role shown by /admin/processes; None: no process record.
        nice: niceness of this process, so that servers have priority.
    """
    path = control.log_path(run_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if nice:
        os.nice(nice)
    if role is not None:
        records.record_self(run_dir, name, role)


def logs_failures(actor: Actor) -> Actor:
    """Class decorator that logs exceptions of public methods with traceback in the actor's log.

    The caller logs only one line. Errors defined by slime are not logged, because their message is sufficient.
    """
    for name, member in list(vars(actor).items()):
        if callable(member) and not name.startswith("_"):
            setattr(actor, name, _logged(member))
    return actor


def _logged(method: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(method)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return method(*args, **named)
        except ClawError:
            raise
        except Exception:
            logger.exception("%s failed", method.__name__)
            raise

    return call


def enable_expandable_segments(environ: MutableMapping[str, str]) -> None:
    """Enables expandable segments unless the user has set a variable. Call it before torch uses the GPU."""
    if not any(name in environ for name in VARIABLES):
        environ[VARIABLES[0]] = EXPANDABLE


def reset_allocator(environ: MutableMapping[str, str]) -> None:
    """Restores torch's allocator defaults. Call it before torch uses the GPU."""
    for name in VARIABLES:
        environ.pop(name, None)


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns a driver's environment without variables for trainers only."""
    return {name: value for name, value in environ.items() if name not in (*VARIABLES, QUEUES)}
