"""Ray's runtime: started quietly for this run alone, or the cluster at RAY_ADDRESS."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import ray

from claw_base.files import private_folder
from claw_base.run_folder.records import ProcessRecord, birth_of
from slime.errors import ClusterError, TrainError
from slime.processes.control import scratch_dir
from slime.processes.known_failures import with_advice

logger = logging.getLogger(__name__)

NAMESPACE = "slime"
LIBRARY_VARIABLES = (
    "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_", "TORCH_", "NCCL_", "GLOO_", "NVTE_", "TRITON_", "HF_HOME", "HF_HUB_",
    "HF_DATASETS_", "TRANSFORMERS_", "TOKENIZERS_", "MALLOC_",
)  # fmt: skip
MALLOC_ARENAS = "2"
"""glibc's MALLOC_ARENA_MAX for each process of a run. With glibc's default of eight a core, every thread of Ray's
actors keeps memory that it never returns: in a soak test of ten minutes the buffer grew by 9 %, with two arenas by 3
%."""
REACH_SECONDS = 10.0
RAY_FILES = "r"
"""Ray makes its folder, with sockets and logs, accessible to all users, so it gets a folder inside a private one. The
name is short because socket paths are limited."""
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
OBJECT_STORE_BYTES = 128 * 2**20  # batches are token ids; weights are sent through files


class Runtime:
    """The Ray runtime that this driver uses.

    Args:
        run_dir: its scratch folder gets Ray's files.
        cpus: logical CPUs, at least the machine's number.
        gpus: GPUs that Ray may assign; None: Ray counts them.
        limit: seconds for Ray's start, 0: no limit; after it the process exits with status 1.
    """

    def __init__(self, run_dir: Path, cpus: int, gpus: int | None = None, limit: float = 0.0) -> None:
        self.own_processes: list[ProcessRecord] = []
        address = os.environ.get("RAY_ADDRESS")
        with ends_after(limit, f"Ray at {address}" if address else f"Ray in {scratch_dir(run_dir)}"):
            self.start(run_dir, cpus, gpus)

    def start(self, run_dir: Path, cpus: int, gpus: int | None) -> None:
        # the waiting caller logs the error in one line
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        os.environ.setdefault("MALLOC_ARENA_MAX", MALLOC_ARENAS)
        if joins():
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
            _temp_dir=str(private_folder(scratch_dir(run_dir)) / RAY_FILES),
        )
        self.own_processes = [
            ProcessRecord(
                child.name(), "ray", child.pid, child.create_time(), None, [], 0.0, birth_of(child.pid)
            )
            for child in psutil.Process().children()
            if child.name() in ("raylet", "gcs_server")
        ]

    def check(self) -> None:
        """Raises TrainError if Ray has died, which Ray itself reports much later."""
        for process in self.own_processes:
            if not process.alive():
                raise TrainError(f"Ray's {process.name} has ended; the driver must start again")

    def end_agents(self) -> None:
        """Kills Ray's agents, which would outlive this process by a minute: they detect the exit of the raylet late."""
        for process in self.own_processes:
            with suppress(psutil.Error):
                for child in psutil.Process(process.pid).children():
                    if process.alive() and child.name() in AGENTS:
                        child.kill()

    def close(self) -> None:
        ray.shutdown()


def worker_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the driver's variables that workers of an existing cluster need: module paths, and settings of training
    libraries. Each machine's own PYTHONPATH is appended. Ray shows these to anyone who may see jobs, so variables
    that may contain a key are excluded."""
    variables = {name: value for name, value in env.items() if name.startswith(LIBRARY_VARIABLES)}
    if env.get("PYTHONPATH"):
        variables["PYTHONPATH"] = env["PYTHONPATH"] + os.pathsep + "${PYTHONPATH}"
    return {**variables, "RAY_worker_niceness": "0"}  # servers inherit it from the actor that starts them


def joins() -> bool:
    """Returns whether the driver joins an existing cluster instead of starting its own Ray."""
    return bool(os.environ.get("RAY_ADDRESS"))


def join(address: str) -> None:
    """Joins the cluster at RAY_ADDRESS. Raises ClusterError if that fails."""
    _reach(address)
    os.environ["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"  # a submitted job may set some of these variables too
    try:
        ray.init(
            namespace=NAMESPACE,
            logging_level="ERROR",
            runtime_env={"env_vars": worker_environment(os.environ)},
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"RAY_ADDRESS {address} cannot be joined: {reason}"
        raise ClusterError(with_advice(message, str(error))) from error


def _raylets() -> list[psutil.Process]:
    """Returns Ray's node processes on this machine, of every user."""
    return [one for one in psutil.process_iter(["name", "uids"]) if one.info["name"] == "raylet"]


def _reach(address: str) -> None:
    """Raises ClusterError if no process listens at HOST:PORT, or if `auto` would find another user's Ray. In both cases
    Ray would end this process with its own message."""
    if address == "auto":
        users = {process.info["uids"].real for process in _raylets() if process.info["uids"]}
        if users and os.getuid() not in users:
            message = (
                "RAY_ADDRESS auto cannot be joined: the Ray on this machine belongs to another user; set it to HOST:PORT "
                "of your own, or unset it, and the script starts one"
            )
            raise ClusterError(message)
    match = re.fullmatch(r"\[?([^/\[\]]+)\]?:(\d+)", address)
    if match is None:
        return  # auto, or another keyword of Ray
    try:
        socket.create_connection((match[1], int(match[2])), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        message = f"RAY_ADDRESS {address} cannot be joined: Could not connect to it: {error}"
        raise ClusterError(with_advice(message)) from error


@contextmanager
def ends_after(limit: float, what: str) -> Iterator[None]:
    """Ends the process if the code inside does not finish in time; it cannot be interrupted."""

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
