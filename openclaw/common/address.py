"""Finds the address of the server for programs on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from claw_base import peer
from claw_base.run_folder.admin_key import known_key, local_port, read_key
from claw_base.run_folder.records import live_processes
from claw_base.settings.declare import flag

RUNS = Path(__file__).resolve().parents[2] / "runs"
DEFAULT_PORT = 30000


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """Settings for finding the server. In order: the given address; the port; the gateway that runs in the run folder,
    or in the newest one below `runs/`; port 30000."""

    url: str | None = flag(
        None, "The server's address, default: that of the run on this machine, else port 30000"
    )
    port: int | None = flag(
        None,
        "The server's port on this machine, if no address is given",
        env=("PORT", "OPENCLAW_PORT"),
        least=1,
        most=65535,
    )
    run_dir: str | None = flag(
        None, "Run folder of the server, if neither address nor port is given", env=("RUN_DIR",), unit="path"
    )

    def address(self, runs: Path = RUNS) -> str:
        """Returns a URL, with or without /v1."""
        if self.url is not None:
            return self.url
        if self.port is not None:
            return _local(self.port)
        folders = [Path(self.run_dir)] if self.run_dir else _newest_first(runs)
        urls = (url for folder in folders if (url := gateway_of(folder)) is not None)
        return next(urls, _local(DEFAULT_PORT))


def admin_key_for(url: str, key: str | None, run_dir: str | None = None, runs: Path = RUNS) -> str | None:
    """Returns the admin key for a server: the given one; else the key in the folder of this user's run at this local
    address; None if there is none. In a given `run_dir` without records of processes (a gateway started by hand), any
    local server of this user counts, if the kernel identifies it."""
    if key is not None:
        return key
    if run_dir is None:
        return known_key(url, _newest_first(runs))
    if (run_key := known_key(url, [Path(run_dir)])) is not None:
        return run_key
    is_own = local_port(url) is not None and peer.can_identify_users() and peer.serves_own_user(url)
    return read_key(Path(run_dir)) if is_own else None


def gateway_of(run_dir: Path) -> str | None:
    """Returns the URL of the gateway that runs in this folder; None if none does."""
    for record in live_processes(run_dir):
        if record.get("role") == "gateway" and record.get("url"):
            return str(record["url"])
    return None


def _local(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _newest_first(runs: Path) -> list[Path]:
    folders = [folder for folder in runs.glob("*") if (folder / "processes").is_dir()]
    return sorted(folders, key=lambda folder: (folder / "processes").stat().st_mtime, reverse=True)
