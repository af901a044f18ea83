"""The actor that owns the server processes of a run."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import ray

from claw_base.run_folder import records
from slime.processes import control, nodes
from slime.processes.scaling import Scaler
from slime.processes.servers import ServerManager, ServerSpec
from slime.processes.watch import ServerWatch
from slime.ray import actor_process
from slime.ray.cluster import here
from slime.ray.waiting import Heartbeat, WaitTimeout, gather

logger = logging.getLogger(__name__)


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=4)
class ServerWatcher:
    """Starts or adopts the servers and keeps them alive. Ray restarts it when it dies, without effect on the servers.

    Args:
        run_dir: run folder.
        specs: all servers of the run; each group has the number of servers that its flag asks for. A recorded server that
            is not among them and was not added by `slime.processes.scaling` is stopped.
        env: environment of the servers (the driver's, not that of a Ray worker).
        node: this machine is not the driver's. `run_dir` is then its own folder (`slime.processes.nodes`), and the
            servers get this machine's environment and the driver's variables that they need.
    """

    def __init__(
        self, run_dir: Path, specs: Sequence[ServerSpec], env: Mapping[str, str], node: bool = False
    ) -> None:
        actor_process.enter(run_dir, "server_watcher")
        self.manager = ServerManager(run_dir, env)
        if node:
            nodes.begin(run_dir)
            self.manager = nodes.NodeServers(run_dir, {**os.environ, **env})
            specs = [*specs, nodes.keeper_spec(run_dir, sys.executable)]
            threading.Thread(target=self.renew, args=(run_dir,), daemon=True).start()
        scaler = Scaler(self.manager, specs)
        self.specs = scaler.target()
        self.manager.adopt_or_launch_all(self.specs)
        ServerWatch(self.manager, scaler).start()

    def renew(self, folder: Path) -> None:
        """Keeps the run's lease on this machine alive while this actor lives."""
        while True:
            time.sleep(nodes.RENEW_INTERVAL)
            nodes.renew(folder)

    def end(self, name: str) -> None:
        """Ends a server that hangs; it is restarted."""
        record = records.read_record(self.manager.run_dir, name)
        if record is not None:
            control.terminate(record, grace=0.0)

    def wait_ready(self) -> None:
        """Returns once all servers answer. Raises ConfigError or EngineError with the log of a failure."""
        for spec in self.specs:
            if spec.name in self.manager.servers:  # otherwise it was scaled down meanwhile
                self.manager.wait_ready(spec)

    def pid(self) -> int:
        return os.getpid()

    def restarts(self) -> dict[str, int]:
        """Returns the number of restarts of each server since this actor began."""
        return {name: watched.restarts for name, watched in self.manager.servers.items()}


class WatcherHandle:
    """The driver's client of a watcher: waits for the servers, and replaces a watcher that hangs. Without servers, no
    watcher is started.

    Args: as `ServerWatcher`; `limit`: seconds in which the watcher must answer a heartbeat.
    """

    def __init__(
        self, run_dir: Path, specs: Sequence[ServerSpec], env: Mapping[str, str], limit: float
    ) -> None:
        on_this_node = ServerWatcher.options(scheduling_strategy=here())  # type: ignore[attr-defined]
        self.actor = on_this_node.remote(run_dir, specs, env)
        self.logs = run_dir / "logs"
        self.start_limit = sum(spec.start_timeout for spec in specs) + 60.0
        self.heartbeat = Heartbeat(lambda: self.actor.pid.remote(), "the watcher of the servers", limit)

    def wait_ready(self) -> None:
        """Returns once all servers answer. Raises ConfigError or EngineError with the log of a failure."""
        gather(
            [self.actor.wait_ready.remote()],
            f"the start of the servers (logs: {self.logs})",
            self.start_limit,
        )

    def check(self) -> None:
        """Kills a watcher that misses its heartbeat; Ray starts another, which adopts the servers."""
        try:
            self.heartbeat.check()
        except WaitTimeout as error:
            logger.warning("%s: starting it again", error)
            pid = self.heartbeat.answer
            if pid is not None and psutil.pid_exists(pid):
                psutil.Process(pid).kill()
