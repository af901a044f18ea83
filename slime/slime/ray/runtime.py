"""Ray itself: started quietly for this run alone, or joined where RAY_ADDRESS names a cluster."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import ray

from slime.errors import ConfigError, TrainError
from slime.processes import ProcessRecord, scratch_dir
from slime.trouble import with_advice

logger = logging.getLogger(__name__)

NAMESPACE = "slime"
OBJECT_STORE_BYTES = 128 * 2**20  # batches are token ids; weights go through files


class Runtime:
    """The Ray that this driver uses.

    Args:
        run_dir: its scratch folder gets Ray's files.
        cpus: logical CPUs; the machine's where that is more.
        gpus: GPUs that Ray may give out, or None to let it count them.
        limit: seconds that Ray has to start, 0 for as long as it takes; then the process ends with status 1.
    """

    def __init__(self, run_dir: Path, cpus: int, gpus: int | None = None, limit: float = 0.0) -> None:
        self.own_processes: list[ProcessRecord] = []
        address = os.environ.get("RAY_ADDRESS")
        with ends_after(limit, f"Ray at {address}" if address else f"Ray in {scratch_dir(run_dir)}"):
            self.start(run_dir, cpus, gpus)

    def start(self, run_dir: Path, cpus: int, gpus: int | None) -> None:
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"  # who waits for a call tells its error, in one line
        if os.environ.get("RAY_ADDRESS"):
            join(os.environ["RAY_ADDRESS"])
            return
        shutil.rmtree(scratch_dir(run_dir), ignore_errors=True)
        ray.init(
            address="local",
            namespace=NAMESPACE,
            include_dashboard=False,
            num_cpus=max(cpus, os.cpu_count() or 1),
            num_gpus=gpus,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(scratch_dir(run_dir)),
        )
        self.own_processes = [
            ProcessRecord(child.name(), "ray", child.pid, child.create_time(), None, [], 0.0)
            for child in psutil.Process().children()
            if child.name() in ("raylet", "gcs_server")
        ]

    def check(self) -> None:
        """Raises TrainError if Ray has died under the driver, which Ray itself reports much later."""
        for process in self.own_processes:
            if not process.alive():
                raise TrainError(f"Ray's {process.name} has ended; the driver must start again")

    def close(self) -> None:
        ray.shutdown()


def join(address: str) -> None:
    """Joins the cluster at RAY_ADDRESS. Raises ConfigError where that cannot be done."""
    try:
        ray.init(namespace=NAMESPACE, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"RAY_ADDRESS {address} cannot be joined: {reason}"
        raise ConfigError(with_advice(message, str(error))) from error


@contextmanager
def ends_after(limit: float, what: str) -> Iterator[None]:
    """Ends the process where what runs inside cannot be interrupted and hangs."""

    def end() -> None:
        logger.critical("%s did not start within %g s (--ray-start-timeout)", what, limit)
        logging.shutdown()
        os._exit(1)

    timer = threading.Timer(limit, end)
    timer.daemon = True
    if limit:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
