"""Sending side of a broadcast: rank 0 of a group with the GPUs of one SGLang engine.

It reads a version's folder, which the trainer has just written and which is therefore in the page cache.
Calls block; a hanging call is ended by killing this process, which closes its connections.
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

dist: Any = torch.distributed  # torch's type stubs lack the stores
c10d: Any = distributed_c10d  # and this private module


@dataclass(frozen=True)
class Meeting:
    """The address of a group's rendezvous, and the device ("cpu", "cuda") on which rank 0 has the weights."""

    host: str
    port: int
    device: str


class Sender:
    """Holds one group at a time.

    `_new_process_group_helper` is private to torch, but SGLang uses it too, and both must prefix the store's
    keys in the same way.
    """

    def __init__(self) -> None:
        self.device = self.sends_from = "cuda" if torch.cuda.is_available() else "cpu"
        self.store: Any = None
        self.group: Any = None

    def meet(self, engine_host: str, timeout: float) -> Meeting:
        """Opens the store of the next group on this machine's address that routes to the engine's machine.

        Raises:
            EngineError: the engine's machine cannot be resolved or reached.
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
        """Joins the group; returns when all ranks have joined (NCCL connects at the first bucket)."""
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
        """Sends a bucket to all other ranks. Raises EngineError for an unreadable file."""
        flat = bucket.read(self.sends_from)
        dist.broadcast(flat, src=0, group=self.group)
        if self.sends_from == "cuda":
            torch.cuda.synchronize()

    def leave(self) -> None:
        """Closes the group, if any, and frees the memory."""
        if self.group is not None:
            dist.destroy_process_group(self.group)
        self.group = self.store = None
        if self.device == "cuda":
            torch.cuda.empty_cache()


def own_address(towards: str) -> str:
    """Returns this machine's address on the route to `towards`, without sending anything."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise EngineError(f"the machine that sends weights cannot reach {towards}: {error}") from error
