"""The rendezvous of the trainer's ranks, without an unauthenticated network port.

A single rank needs none. Ranks on one machine use a file in the run folder, which only its owner can open. Ranks on
several machines use a Ray actor; Ray requires the cluster's token on each connection. torch's own `TCPStore` has no
authentication and exposes all keys.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from claw_base.files import private_folder
from slime.ray.cluster import here

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

FOLDER = "rendezvous"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Meeting:
    """Rendezvous of the ranks: `file` on one machine, `board` (an actor) on several; neither for a single rank."""

    file: str = ""
    board: Any = None

    def enter(self, ranks: int) -> Store | None:
        """Returns the store that a rank passes to torch, and sets the network interface of its process groups."""
        from torch._C._distributed_c10d import FileStore

        from slime.training.core.distributed import listen_on

        listen_on(LOOPBACK if self.board is None else ray.util.get_node_ip_address())
        if self.board is not None:
            from slime.ray.board_store import BoardStore

            return BoardStore(self.board)
        return FileStore(self.file, ranks) if self.file else None

    def end(self) -> None:
        """Closes the rendezvous."""
        if self.board is not None:
            ray.kill(self.board)
        if self.file:
            Path(self.file).unlink(missing_ok=True)


def arrange(run_dir: Path, ranks: int, several_nodes: bool) -> Meeting:
    """Creates the rendezvous of a new group of ranks.

    Raises:
        ConfigError: another user owns the run's folder of rendezvous files.
    """
    shutil.rmtree(run_dir / FOLDER, ignore_errors=True)
    if ranks == 1:
        return Meeting()
    if several_nodes:
        return Meeting(board=Board.options(scheduling_strategy=here()).remote())  # type: ignore[attr-defined]
    return Meeting(file=str(private_folder(run_dir / FOLDER) / uuid.uuid4().hex))


@ray.remote(num_cpus=0, max_restarts=0)
class Board:
    """The key-value store of ranks on several machines."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = asyncio.Condition()

    async def put(self, key: str, value: bytes) -> None:
        async with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    async def add(self, key: str, number: int) -> int:
        async with self.changed:
            total = int(self.values.get(key, b"0")) + number
            self.values[key] = str(total).encode()
            self.changed.notify_all()
            return total

    async def exchange(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Compare-and-set: stores `value` if the key has the value `expected`, or is not set and `expected` is empty.

        Returns the value afterwards.
        """
        async with self.changed:
            if self.values.get(key, b"") == expected:
                self.values[key] = value
                self.changed.notify_all()
            return self.values.get(key, expected)

    async def remove(self, key: str) -> bool:
        async with self.changed:
            return self.values.pop(key, None) is not None

    async def count(self) -> int:
        return len(self.values)

    async def find(self, keys: list[str], seconds: float) -> list[bytes] | None:
        """Returns the values of all keys when all are set; None if they are not within `seconds`."""

        def all_set() -> bool:
            return all(key in self.values for key in keys)

        async with self.changed:
            try:
                if not all_set():
                    await asyncio.wait_for(self.changed.wait_for(all_set), seconds)
            except TimeoutError:
                return None
            return [self.values[key] for key in keys]
