"""Rows of tensors that ranks share out among themselves: sums in which each gets its rows, and wholes from all rows.

Tensors travel many at a time. A rank's rows are those that `torch.chunk` gives it, so the last ones may have fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from slime.training.megatron.parallel import Axis

BUCKET = 64 * 2**20  # numbers that travel at a time
# Newer name, older name
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def own_rows(rows: int, axis: Axis) -> slice:
    """Returns the part of `rows` rows that belongs to this rank."""
    each = -(-rows // axis.size)
    return slice(min(axis.rank * each, rows), min((axis.rank + 1) * each, rows))


def add_up(tensors: Sequence[Tensor], group: object) -> None:
    """Each tensor becomes its sum over the ranks, in place."""
    for bucket in _buckets(tensors):
        flat = torch.cat([x.flatten() for x in bucket])
        dist.all_reduce(flat, group=group)
        for x, total in zip(bucket, torch.split(flat, [x.numel() for x in bucket]), strict=True):
            x.copy_(total.view_as(x))


def add_up_rows(tensors: Sequence[Tensor], axis: Axis) -> list[Tensor]:
    """This rank's rows of the sum of each tensor over the ranks."""
    sums: list[Tensor] = []
    for bucket in _buckets(tensors):
        blocks = torch.cat([_blocks(x, axis.size) for x in bucket], 1)
        own_sum = blocks.new_empty(blocks.shape[1])
        _scatter(own_sum, blocks.flatten(), group=axis.group)
        sizes = [_block_size(x, axis.size) for x in bucket]
        for x, part in zip(bucket, torch.split(own_sum, sizes), strict=True):
            rows = own_rows(x.shape[0], axis)
            sums.append(part.view(-1, *x.shape[1:])[: rows.stop - rows.start])
    return sums


def spread_rows(tensors: Sequence[Tensor], axis: Axis) -> None:
    """Every rank has the right values in its own rows of each tensor; afterwards all ranks have all of them."""
    kinds = dict.fromkeys(x.dtype for x in tensors)
    for bucket in (bucket for kind in kinds for bucket in _buckets([x for x in tensors if x.dtype == kind])):
        own_blocks = torch.cat([_blocks(x, axis.size)[axis.rank] for x in bucket])
        blocks = own_blocks.new_empty(axis.size * len(own_blocks))
        all_gather(blocks, own_blocks, group=axis.group)
        sizes = [_block_size(x, axis.size) for x in bucket]
        for x, part in zip(bucket, torch.split(blocks.view(axis.size, -1), sizes, dim=1), strict=True):
            x.copy_(part.reshape(-1, *x.shape[1:])[: x.shape[0]])


def _blocks(x: Tensor, ranks: int) -> Tensor:
    """[rows, ...] -> [ranks, what one rank has of it], filled up with zeros."""
    missing = -x.shape[0] % ranks
    whole = torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x
    return whole.reshape(ranks, -1)


def _block_size(x: Tensor, ranks: int) -> int:
    return -(-x.shape[0] // ranks) * (x.numel() // max(x.shape[0], 1))


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for number, tensor in enumerate(tensors):
        bucket.append(tensor)
        if number == len(tensors) - 1 or sum(x.numel() for x in bucket) >= BUCKET:
            yield bucket
            bucket = []
