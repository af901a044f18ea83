"""Fingerprints of tensors by operations that every device has: the memory of a GPU is read once, and stays there.

Two sums of a tensor's 8-byte words modulo 2^64, each word times a random odd number (multilinear hashing: Lemire and
Kaser 2014, arXiv 1202.4961); one sum is of the words, the other of their upper halves, so that each of the numbers in a
word changes many bits. They find what a load left behind or damaged, not forgery.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

WORD = 8
"""Bytes."""
SPAN = 1 << 20
"""Words that are multiplied at a time; those of later spans count by powers of `STEP`."""
STEP = 0x9E3779B97F4A7C15 - (1 << 64)

Fingerprint = tuple[int, int]


def fingerprint(tensor: Tensor) -> Fingerprint:
    """Equal for tensors of the same bytes, on whatever device, and unequal for others but by a chance below 2^-48."""
    flat = words(tensor)
    sums = torch.zeros(2, dtype=torch.int64, device=flat.device)
    whole, halves = keys(str(flat.device))
    for first in range(0, len(flat), SPAN):
        span = flat[first : first + SPAN]
        found = torch.stack([(span * whole[: len(span)]).sum(), ((span >> 32) * halves[: len(span)]).sum()])
        sums = sums * STEP + found
    first_sum, second_sum = sums.tolist()
    return first_sum, second_sum


def words(tensor: Tensor) -> Tensor:
    """The bytes of a tensor as flat int64, eight in each, or one in each where they do not make words."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.nbytes % WORD:
        return flat.view(torch.uint8).to(torch.int64)
    if flat.storage_offset() * flat.itemsize % WORD or flat.data_ptr() % WORD:
        flat = flat.clone()
    return flat.view(torch.int64)


@lru_cache(maxsize=8)
def keys(device: str) -> tuple[Tensor, Tensor]:
    """The same odd numbers on every device and in every process."""
    generator = torch.Generator().manual_seed(0x5EED)
    made = torch.randint(-(1 << 62), 1 << 62, (2, SPAN), generator=generator) * 2 + 1
    whole, halves = made.to(device)
    return whole, halves
