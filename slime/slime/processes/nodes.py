"""Servers of a run on other machines than the driver's: their folder, and how they end.

`RUN_DIR/nodes/ADDRESS` has the records and logs of one machine, like the run folder for the driver's: a pid is valid
only on its machine. The watcher of the machine renews the file `lease` in it. A process there, `python -m
slime.processes.nodes`, ends all servers of the folder once the file `stop` is there, or if the lease was not renewed
for long: the driver's machine may be gone, and nothing else would free the GPUs.
"""

from __future__ import annotations

import logging
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from claw_base.files import private_folder
from claw_base.run_folder import records
from claw_base.run_folder.records import ProcessRecord
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import EngineError
from slime.processes.servers import ServerManager, ServerSpec

logger = logging.getLogger(__name__)

LEASE_SECONDS = 900.0
"""Seconds for which a machine's engines serve without a driver. A new driver, or the Ray of a new job, starts
faster."""
RENEW_INTERVAL = 5.0  # seconds
POLL_SECONDS = 1.0
STOP_TIMEOUT = 20.0  # seconds in which the machines may report the end of their servers
KEEPER = "lease"


def folder_of(run_dir: Path, address: str) -> Path:
    """Returns the folder with records and logs of the servers on that machine."""
    return run_dir / "nodes" / address.replace(":", "_")


def stop_file(folder: Path) -> Path:
    return folder / "stop"


def stopped_file(folder: Path) -> Path:
    return folder / "stopped"


def lease_file(folder: Path) -> Path:
    return folder / "lease"


def renew(folder: Path) -> None:
    """Renews the lease: the run continues."""
    folder.mkdir(parents=True, exist_ok=True)
    lease_file(folder).touch()


def begin(folder: Path) -> None:
    """Starts a run in the folder; orders of an earlier one are removed.

    Raises ConfigError if the run's folder is in a folder that all users share, such as /tmp, and belongs to another
    user, who could replace records and logs.
    """
    run_dir = folder.parents[1]
    if run_dir.parent.exists() and run_dir.parent.stat().st_mode & stat.S_ISVTX:
        private_folder(run_dir)
    renew(folder)
    for sign in (stop_file(folder), stopped_file(folder)):
        sign.unlink(missing_ok=True)


class NodeServers(ServerManager):
    """The servers of one machine other than the driver's."""

    def launch(self, spec: ServerSpec) -> ProcessRecord:
        """Starts a server. Raises EngineError after the end of the run, if the keeper has just ended that server."""
        if stop_file(self.run_dir).exists():
            raise EngineError(f"{spec.name} is not started again: the run has ended")
        return super().launch(spec)


def keeper_spec(folder: Path, python: str) -> ServerSpec:
    """Returns the spec of the process that ends the servers of the folder."""
    return ServerSpec(KEEPER, "keeper", [python, "-m", "slime.processes.nodes", "--folder", str(folder)])


def keep(folder: Path, seconds: float = LEASE_SECONDS, sleep: Callable[[float], None] = time.sleep) -> str:
    """Returns after the last server of the folder has ended, with the reason.

    Args:
        seconds: without a renewal, counted on this machine's clock.
    """
    seen, since = 0.0, time.monotonic()
    while not stop_file(folder).exists():
        renewed = lease_file(folder).stat().st_mtime if lease_file(folder).exists() else 0.0
        if renewed != seen:
            seen, since = renewed, time.monotonic()
        if time.monotonic() - since > seconds:
            end_all(folder)
            return f"no driver has renewed the lease for {seconds:g} s"
        sleep(POLL_SECONDS)
    end_all(folder)
    stopped_file(folder).touch()
    return "the run has ended"


def end_all(folder: Path) -> None:
    """Ends every server of the folder but the keeper, which calls this."""
    manager = ServerManager(folder)
    for record in manager.processes():
        if record.name != KEEPER:
            manager.stop(record.name)
    for record in filter(records.is_worker, records.read_records(folder)):
        manager.stop(record.name)


def stop_servers_on_other_machines(run_dir: Path, patience: float = STOP_TIMEOUT) -> list[str]:
    """Orders the end of the servers on all other machines that share the run folder, and waits for it.

    Returns:
        The machines that have not answered: they are lost, or end their servers when the lease is over.
    """
    waiting = [folder for folder in (run_dir / "nodes").glob("*") if records.read_record(folder, KEEPER)]
    for folder in waiting:
        stop_file(folder).touch()
    deadline = time.monotonic() + patience
    while waiting and time.monotonic() < deadline:
        time.sleep(0.1)
        waiting = [folder for folder in waiting if not stopped_file(folder).exists()]
    return [folder.name for folder in waiting]


def forwarded_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the driver's variables that its engines on other machines get in addition to the environment there: for
    engines and proxies, without keys."""
    passed, secret = ("SGLANG_", "VLLM_", "HF_", "no_proxy", "NO_PROXY"), ("KEY", "TOKEN")
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(passed) and not any(word in name for word in secret)
    }


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The folder and lease that the keeper watches."""

    folder: Path = flag(REQUIRED, "folder with the records of this machine's servers")
    seconds: float = flag(
        LEASE_SECONDS, "seconds after the last renewal of the lease until the servers are stopped"
    )


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(Kept, argv, "python -m slime.processes.nodes", __doc__.splitlines()[0])
    print(f"servers of {args.folder} have ended: {keep(args.folder, args.seconds)}", file=sys.stderr)
    records.forget(args.folder, KEEPER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
