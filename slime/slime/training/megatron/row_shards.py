"""Rows of tensors that are sharded over ranks: reduce-scatter and all-gather.

Many tensors are sent at a time. Rows are divided as by `torch.chunk`, so the last ranks may have fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from slime.training.megatron.parallel import Axis

BUCKET = 64 * 2**20  # elements sent at a time
# newer name, older name
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def own_rows(rows: int, axis: Axis) -> slice:
    """Returns this rank's part of `rows` rows."""
    each = -(-rows // axis.size)
    return slice(min(axis.rank * each, rows), min((axis.rank + 1) * each, rows))


def add_up(tensors: Sequence[Tensor], group: object) -> None:
    """Replaces each tensor by its sum over the ranks, in place."""
    for bucket in _buckets(tensors):
        flat = torch.cat([x.flatten() for x in bucket])
        dist.all_reduce(flat, group=group)
        for x, total in zip(bucket, torch.split(flat, [x.numel() for x in bucket]), strict=True):
            x.copy_(total.view_as(x))


def add_up_rows(tensors: Sequence[Tensor], axis: Axis) -> list[Tensor]:
    """Returns this rank's rows of each tensor's sum over the ranks."""
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
    """Sends every rank's own rows of each tensor to all ranks, in place."""
    kinds = dict.fromkeys(x.dtype for x in tensors)
    for bucket in (bucket for kind in kinds for bucket in _buckets([x for x in tensors if x.dtype == kind])):
        own_blocks = torch.cat([_blocks(x, axis.size)[axis.rank] for x in bucket])
        blocks = own_blocks.new_empty(axis.size * len(own_blocks))
        all_gather(blocks, own_blocks, group=axis.group)
        sizes = [_block_size(x, axis.size) for x in bucket]
        for x, part in zip(bucket, torch.split(blocks.view(axis.size, -1), sizes, dim=1), strict=True):
            x.copy_(part.reshape(-1, *x.shape[1:])[: x.shape[0]])


def _blocks(x: Tensor, ranks: int) -> Tensor:
    """Splits [rows, ...] into equal blocks [ranks, ...], padded with zeros."""
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
