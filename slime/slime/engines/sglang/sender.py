"""The sending side of a broadcast: rank 0 of a group whose other ranks are the GPUs of one SGLang engine.

It reads a version's folder, which the trainer has just written and which so lies in the page cache. Calls block; what
frees one that hangs is the end of its process, which closes its connections.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch.distributed import distributed_c10d

from slime.engines.sglang.buckets import Bucket
from slime.errors import EngineError

dist: Any = torch.distributed  # whose types leave out the stores
c10d: Any = distributed_c10d  # and what is private here


@dataclass(frozen=True)
class Meeting:
    """The address of a group's rendezvous, and the device ("cpu", "cuda") on which rank 0 has the weights."""

    host: str
    port: int
    device: str


class Sender:
    """Holds one group at a time.

    `_new_process_group_helper` is private to torch, and what SGLang's side of the group is made with: both must prefix
    the keys of the store in the same way.
    """

    def __init__(self) -> None:
        self.device = self.sends_from = "cuda" if torch.cuda.is_available() else "cpu"
        self.store: Any = None
        self.group: Any = None

    def meet(self, engine_host: str, timeout: float) -> Meeting:
        """Opens the store of the next group, on the address of this machine that is nearest to the engine's machine.

        Raises:
            EngineError: that machine has no address, or none that this one knows a way to.
        """
        self.leave()
        host = own_address(engine_host)
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        port = listener.getsockname()[1]
        self.store = dist.TCPStore(
            host,
            port,
            is_master=True,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        return Meeting(host, port, self.device)

    def join(self, name: str, world_size: int, backend: str, timeout: float) -> None:
        """Enters the group; returns when all ranks are there (NCCL: connects with the first bucket)."""
        limit = timedelta(seconds=timeout)
        self.sends_from = self.device if backend == "nccl" else "cpu"
        self.group, _ = c10d._new_process_group_helper(
            world_size,
            0,
            [],
            dist.Backend(backend),
            dist.PrefixStore(name, self.store),
            group_name=name,
            timeout=limit,
        )
        c10d._world.pg_group_ranks[self.group] = {rank: rank for rank in range(world_size)}

    def send(self, bucket: Bucket) -> None:
        """Sends a bucket to all other ranks. Raises EngineError for a file that cannot be read."""
        flat = bucket.read(self.sends_from)
        dist.broadcast(flat, src=0, group=self.group)
        if self.sends_from == "cuda":
            torch.cuda.synchronize()

    def leave(self) -> None:
        """Closes the group, if there is one, and gives back the memory."""
        if self.group is not None:
            dist.destroy_process_group(self.group)
        self.group = self.store = None
        if self.device == "cuda":
            torch.cuda.empty_cache()


def own_address(towards: str) -> str:
    """The address of this machine on the way to another one, or to itself. Nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise EngineError(f"no way from where weights are sent to {towards}: {error}") from error
