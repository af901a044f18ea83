"""Digests of tensors: two processes compare them to verify that they hold the same bits.

A tensor is read once, piece by piece. Each piece is cast, written, checked and digested while it is in the processor's
cache. The digest is XXH3-128 (https://xxhash.com): as fast as memory on one core. It detects damage, not forgery; a
process that could forge a tensor on this machine could forge its digest too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import xxhash
from torch import Tensor

from slime.errors import EngineError
from slime.weights.slots import COMPLETE

FILE = COMPLETE
PIECE = 1 << 17
"""Elements that are handled at a time: small enough for a cache, large enough that Python does not count."""
MOST_THREADS = 8
"""More do not read memory faster."""
SMALL = 1 << 24
"""Bytes up to which a second thread costs more than it saves."""

T = TypeVar("T")
Write = Callable[[memoryview], object]


class NotFiniteError(EngineError):
    """A tensor holds NaN or infinity."""


@dataclass(frozen=True)
class TensorDigest:
    """Description of a tensor: torch's name of its dtype (`bfloat16`), its shape, the hex digest of its raw bytes."""

    dtype: str
    shape: tuple[int, ...]
    digest: str


def digest_tensor(
    tensor: Tensor,
    dtype: torch.dtype | None = None,
    write: Write | None = None,
    into: Tensor | None = None,
    finite: bool = True,
) -> TensorDigest:
    """Casts, writes, checks and digests a tensor in one pass, without changing it.

    Args:
        dtype: dtype to cast to; None: the tensor's own.
        write: receives the bytes in order, in pieces that are valid only during the call.
        into: flat memory of that dtype, which holds the tensor afterwards.
        finite: check that values are finite.

    Raises:
        NotFiniteError: a value is not finite in that dtype.
    """
    flat = tensor.detach().reshape(-1)
    kind = dtype or flat.dtype
    there = into is None and flat.dtype == kind and flat.device.type == "cpu"
    scratch = torch.empty(0 if there or into is not None else min(PIECE, flat.numel()), dtype=kind)
    target = flat if there else scratch if into is None else into
    numbers, plain = _numbers(target), flat.dtype == kind and flat.device.type == "cpu"
    source = _numbers(flat) if plain and not there else None
    digest = xxhash.xxh3_128()
    for first in range(0, flat.numel(), PIECE):
        last = min(first + PIECE, flat.numel())
        at = slice(0, last - first) if target is scratch else slice(first, last)
        if source is not None:
            np.copyto(numbers[at], source[first:last])
        elif not there:
            target[at].copy_(flat[first:last])
        if finite and not _is_finite(numbers[at], target, at):
            raise NotFiniteError("values that are not finite")
        digest.update(numbers[at])
        if write is not None:
            write(numbers[at].view(np.uint8).data)
    return TensorDigest(str(kind).removeprefix("torch."), tuple(tensor.shape), digest.hexdigest())


WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers of so many bytes."""
INFINITY = {
    torch.bfloat16: 0x7F80,
    torch.float16: 0x7C00,
    torch.float32: 0x7F80_0000,
    torch.float64: 0x7FF0_0000_0000_0000,
}
"""Infinity's bits. NaN's are larger (IEEE 754)."""


def _numbers(flat: Tensor) -> Any:
    """The bits of a flat tensor as whole numbers with a sign, in the same memory; numpy takes pieces of it, and copies
    them, in less time than torch does."""
    return flat.view(WIDTHS[flat.element_size()]).numpy() if flat.device.type == "cpu" else None


def _is_finite(numbers: Any, target: Tensor, at: slice) -> bool:
    """By two maxima of the bits, twice as fast as those of the values: of those without a sign, and of those with."""
    if not target.is_floating_point():
        return True
    if target.dtype not in INFINITY:
        return bool(target[at].float().isfinite().all())
    infinity, sign = INFINITY[target.dtype], 1 << (8 * numbers.itemsize - 1)
    unsigned = numbers.view(f"u{numbers.itemsize}")
    return int(np.maximum.reduce(numbers)) < infinity and int(np.maximum.reduce(unsigned)) < sign + infinity


def copy_tensor(tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, TensorDigest]:
    """A copy in this process's memory, and its digest, in one pass. Raises NotFiniteError."""
    copy = torch.empty(tensor.shape, dtype=dtype)
    return copy, digest_tensor(tensor, dtype, into=copy.reshape(-1))


def digest_tensors(tensors: Mapping[str, Tensor], finite: bool = True) -> dict[str, TensorDigest]:
    """Digests by name, of several tensors at the same time. `finite`: whether their values are looked at.

    Raises:
        NotFiniteError: names the tensor.
    """

    def digest(name: str) -> TensorDigest:
        try:
            return digest_tensor(tensors[name], finite=finite)
        except NotFiniteError as error:
            raise NotFiniteError(f"{name} holds {error}") from error

    names = sorted(tensors, key=lambda name: -tensors[name].nbytes)
    return dict(zip(names, in_parallel(digest, names, sum(x.nbytes for x in tensors.values())), strict=True))


def in_parallel(action: Callable[[str], T], names: list[str], size: int) -> list[T]:
    """The action on all names, at the same time where their tensors have more than a few bytes; raises the first
    error."""
    if size <= SMALL:
        return [action(name) for name in names]
    with ThreadPoolExecutor(threads(), "weights") as pool:
        return list(pool.map(action, names))


@cache
def threads() -> int:
    """Returns the number of tensors that are handled at a time."""
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))


def write_digests(folder: Path, digests: Mapping[str, TensorDigest]) -> None:
    """Writes the digests into the folder of the tensors."""
    rows = {name: [one.dtype, list(one.shape), one.digest] for name, one in sorted(digests.items())}
    (folder / FILE).write_text(json.dumps({"digest": "xxh3-128", "tensors": rows}), encoding="utf-8")


def read_digests(folder: Path) -> dict[str, TensorDigest] | None:
    """The digests that a folder names; None if an earlier release or another program wrote it.

    Raises:
        EngineError: the file is not one of ours.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["tensors"]
        return {
            name: TensorDigest(str(dtype), tuple(shape), str(digest))
            for name, (dtype, shape, digest) in rows.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{file} holds no digests of tensors: {error!r}") from error
