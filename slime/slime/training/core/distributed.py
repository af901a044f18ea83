"""The process group of the training ranks, and the collectives that a step needs."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from slime.training.core.objects import broadcast_json, gather_values, only_known_classes

TIMEOUT = timedelta(minutes=10)

T = TypeVar("T")


def join(
    rank: int, world_size: int, on_gpu: bool, init_method: str | None, store: Any | None, one_node: bool
) -> DeviceMesh:
    """Joins (or reuses) the process group and returns the data-parallel mesh.

    CPU tensors use gloo, GPU tensors NCCL; both listen only on loopback if all ranks share a machine.

    Raises:
        ValueError: several ranks without a rendezvous, or with one that torch would open on all network
            addresses.
    """
    only_known_classes()
    if init_method is not None and not init_method.startswith("file://"):
        raise ValueError(f"init_method must be file://... or None with a store, not {init_method}")
    if one_node and isinstance(store, HashStore | FileStore | None):
        listen_on("127.0.0.1")
    if on_gpu:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    if not dist.is_initialized():
        if init_method is None and store is None:
            if world_size != 1:
                raise ValueError("several ranks need a rendezvous: pass init_method (file://...) or store")
            store = HashStore()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            init_method=init_method,
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=TIMEOUT,
        )
    return init_device_mesh("cuda" if on_gpu else "cpu", (world_size,))


def listen_on(address: str) -> None:
    """Binds this process's groups to the network interface with `address`, unless the environment selects
    one.

    If no interface of this machine has the address, gloo and NCCL choose one by the host name.
    """
    names = [
        name
        for name, own in psutil.net_if_addrs().items()
        if any(one.address.partition("%")[0] == address for one in own)
    ]
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if names else ():
        # NCCL treats a name as a prefix unless it starts with "="
        os.environ.setdefault(variable, names[0] if variable.startswith("GLOO") else f"={names[0]}")


def device_of(mesh: DeviceMesh) -> torch.device:
    """Returns the device of this rank."""
    if mesh.device_type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(mesh.device_type)


def sum_over_ranks(values: dict[str, float]) -> dict[str, float]:
    """Returns sums over the ranks, by name; every rank must pass the same names."""
    return _reduce(values, dist.ReduceOp.SUM)


def max_over_ranks(values: dict[str, float]) -> dict[str, float]:
    """Returns the largest values over the ranks, by name; every rank must pass the same names."""
    return _reduce(values, dist.ReduceOp.MAX)


def _reduce(values: dict[str, float], operation: dist.ReduceOp.RedOpType) -> dict[str, float]:
    names = sorted(values)
    tensor = torch.tensor([values[name] for name in names], dtype=torch.float64)
    dist.all_reduce(tensor, operation)
    return dict(zip(names, tensor.tolist(), strict=True))


def add_up(values: Tensor) -> Tensor:
    """Returns the sum of a CPU tensor over all ranks."""
    total = values.clone()
    dist.all_reduce(total, dist.ReduceOp.SUM)
    return total


def broadcast(value: T) -> T:
    """Returns rank 0's value on every rank; it must be JSON data."""
    received: T = broadcast_json(value)
    return received


def merge_over_ranks(values: dict[int, list[float]]) -> dict[int, list[float]]:
    """Returns the union of all ranks' values, keyed by sample position."""
    if dist.get_world_size() == 1:
        return dict(values)
    samples = torch.tensor([[key, len(own)] for key, own in values.items()], dtype=torch.int64)
    flat = torch.tensor([x for own in values.values() for x in own], dtype=torch.float64)
    merged: dict[int, list[float]] = {}
    for about, theirs in zip(gather_values(samples.flatten()), gather_values(flat), strict=True):
        keys, lengths = about[::2].tolist(), about[1::2].tolist()
        parts = [part.tolist() for part in torch.split(theirs, lengths)]
        merged |= dict(zip(keys, parts, strict=True))
    return merged
