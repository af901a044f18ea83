"""The actor that owns the plain server processes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import ray

from slime.ray import actor_process
from slime.server_watch import ServerWatch
from slime.servers import ServerManager, ServerSpec


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=4)
class ServerWatcher:
    """Starts or adopts the servers and keeps them alive. Ray restarts it when it dies; servers do not notice.

    Args:
        run_dir: run folder.
        specs: all servers of the run; a recorded one that is not among them is stopped.
        env: environment of the servers (the driver's, not that of a Ray worker).
    """

    def __init__(self, run_dir: Path, specs: Sequence[ServerSpec], env: Mapping[str, str]) -> None:
        actor_process.enter(run_dir, "server_watcher")
        self.specs = list(specs)
        self.manager = ServerManager(run_dir, env)
        self.manager.adopt_or_launch_all(self.specs)
        ServerWatch(self.manager).start()

    def wait_ready(self) -> None:
        """Returns once all servers answer. Raises ConfigError or EngineError with the log of a failure."""
        for spec in self.specs:
            self.manager.wait_ready(spec)

    def restarts(self) -> dict[str, int]:
        """How often each server was started again since this actor began."""
        return {name: watched.restarts for name, watched in self.manager.servers.items()}
