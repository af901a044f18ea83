"""Copies of tensors in reused CPU memory.

Allocating memory costs more than copying into it: new pages must be zeroed, and GPU copies into unpinned
pages go through a staging buffer, one tensor at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

BLOCK = 2**28
"""Bytes. Pinned memory is allocated in powers of two, so small copies share blocks."""
LINE = 64
"""Alignment of every copy, in bytes."""


class HostCopies:
    """Reusable memory for one copy of each tensor in a list; reused while the next list begins with the same
    tensors."""

    def __init__(self) -> None:
        self.room: list[Tensor] = []

    @torch.no_grad()
    def take(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Returns complete copies of this rank's shards; the next call overwrites them."""
        parts = [local_part(tensor) for tensor in tensors]
        fits = sum(1 for _ in _alike(self.room, parts))
        self.room = [*self.room[:fits], *_room_for(parts[fits:])]
        for copy, part in zip(self.room, parts, strict=True):
            copy.copy_(part, non_blocking=True)
        wait_for_copies()
        return self.room


def local_part(tensor: Tensor) -> Tensor:
    """Returns this rank's shard of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def wait_for_copies() -> None:
    """Waits until all asynchronous copies are complete."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _alike(room: Sequence[Tensor], parts: Sequence[Tensor]) -> Iterator[Tensor]:
    for copy, part in zip(room, parts, strict=False):
        if (copy.shape, copy.dtype) != (part.shape, part.dtype):
            return
        yield copy


def _room_for(parts: Sequence[Tensor]) -> list[Tensor]:
    """Returns uninitialized CPU tensors shaped like `parts`, pinned for those on a GPU."""
    sizes = [-(-part.nbytes // LINE) * LINE for part in parts]
    views, left, block = [], sum(sizes), torch.empty(0, dtype=torch.uint8)
    pinned = any(part.is_cuda for part in parts)
    for part, size in zip(parts, sizes, strict=True):
        if size > len(block):
            block = torch.empty(max(size, min(left, BLOCK)), dtype=torch.uint8, pin_memory=pinned)
        views.append(block[: part.nbytes].view(part.dtype).view(part.shape))
        block, left = block[size:], left - size
    return views
