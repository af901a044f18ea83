"""The process group of the training ranks, and the few collectives that a step needs."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

TIMEOUT = timedelta(minutes=10)
LOOPBACK = "lo"

T = TypeVar("T")


def join(
    rank: int, world_size: int, on_gpu: bool, init_method: str | None, store: Any | None, one_node: bool
) -> DeviceMesh:
    """Joins (or reuses) the process group and returns the data-parallel mesh.

    Tensors on the CPU travel by gloo, on loopback where all ranks share a machine, those on a GPU by NCCL.
    """
    elsewhere = (
        init_method is not None and init_method.startswith("tcp://") and "//127.0.0.1:" not in init_method
    )
    if one_node and not elsewhere and Path("/sys/class/net", LOOPBACK).exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    if on_gpu:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    if not dist.is_initialized():
        if init_method is None and store is None:
            if world_size != 1:
                raise ValueError("several ranks need an init_method or a store to find each other")
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


def device_of(mesh: DeviceMesh) -> torch.device:
    """Where this rank's part of what is on the mesh lies."""
    if mesh.device_type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(mesh.device_type)


def sum_over_ranks(values: dict[str, float]) -> dict[str, float]:
    """Sums by name; every rank must give the same names."""
    return _reduce(values, dist.ReduceOp.SUM)


def max_over_ranks(values: dict[str, float]) -> dict[str, float]:
    """Largest by name; every rank must give the same names."""
    return _reduce(values, dist.ReduceOp.MAX)


def _reduce(values: dict[str, float], operation: dist.ReduceOp.RedOpType) -> dict[str, float]:
    names = sorted(values)
    tensor = torch.tensor([values[name] for name in names], dtype=torch.float64)
    dist.all_reduce(tensor, operation)
    return dict(zip(names, tensor.tolist(), strict=True))


def add_up(values: Tensor) -> Tensor:
    """Sum of a CPU tensor over all ranks."""
    total = values.clone()
    dist.all_reduce(total, dist.ReduceOp.SUM)
    return total


def broadcast(value: T) -> T:
    """Rank 0's value on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


def merge_over_ranks(values: dict[int, list[float]]) -> dict[int, list[float]]:
    """The union of what the ranks know by sample."""
    boxes: list[dict[int, list[float]]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(boxes, values)
    return {key: value for box in boxes for key, value in box.items()}
