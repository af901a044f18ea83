"""Digests of tensors, by which two processes verify that they have the same bits.

A tensor is read once, in pieces. Each piece is cast, written, checked and digested while it is in the processor's
cache. The digest is XXH3-128 (https://xxhash.com), which is as fast as memory on one core. It detects corruption, not
forgery; a process that can forge a tensor on this machine can forge its digest too.
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
"""Elements processed at a time: few enough for the cache, enough that Python's overhead is negligible."""
MAX_THREADS = 8
"""More threads do not read memory faster."""
SMALL = 1 << 24
"""Size in bytes below which a second thread costs more than it saves."""

T = TypeVar("T")
Write = Callable[[memoryview], object]


class NotFiniteError(EngineError):
    """A tensor contains NaN or infinity."""


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
    in_place = into is None and flat.dtype == kind and flat.device.type == "cpu"
    scratch = torch.empty(0 if in_place or into is not None else min(PIECE, flat.numel()), dtype=kind)
    target = flat if in_place else scratch if into is None else into
    integers, plain = _as_integers(target), flat.dtype == kind and flat.device.type == "cpu"
    source = _as_integers(flat) if plain and not in_place else None
    digest = xxhash.xxh3_128()
    for first in range(0, flat.numel(), PIECE):
        last = min(first + PIECE, flat.numel())
        part = slice(0, last - first) if target is scratch else slice(first, last)
        if source is not None:
            np.copyto(integers[part], source[first:last])
        elif not in_place:
            target[part].copy_(flat[first:last])
        if finite and not _is_finite(integers[part], target, part):
            raise NotFiniteError("values that are not finite")
        digest.update(integers[part])
        if write is not None:
            write(integers[part].view(np.uint8).data)
    return TensorDigest(str(kind).removeprefix("torch."), tuple(tensor.shape), digest.hexdigest())


WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their size in bytes."""
INFINITY = {
    torch.bfloat16: 0x7F80,
    torch.float16: 0x7C00,
    torch.float32: 0x7F80_0000,
    torch.float64: 0x7FF0_0000_0000_0000,
}
"""The bits of infinity. Those of NaN are larger (IEEE 754)."""


def _as_integers(flat: Tensor) -> Any:
    """Returns the bits of a flat tensor as signed integers in the same memory; numpy slices and copies them faster
    than torch."""
    return flat.view(WIDTHS[flat.element_size()]).numpy() if flat.device.type == "cpu" else None


def _is_finite(integers: Any, target: Tensor, part: slice) -> bool:
    """Checks two maxima of the bits, without and with the sign, which is twice as fast as checking the values."""
    if not target.is_floating_point():
        return True
    if target.dtype not in INFINITY:
        return bool(target[part].float().isfinite().all())
    infinity, sign = INFINITY[target.dtype], 1 << (8 * integers.itemsize - 1)
    unsigned = integers.view(f"u{integers.itemsize}")
    return int(np.maximum.reduce(integers)) < infinity and int(np.maximum.reduce(unsigned)) < sign + infinity


def copy_tensor(tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, TensorDigest]:
    """Returns a copy in this process's memory, and its digest, in one pass. Raises NotFiniteError."""
    copy = torch.empty(tensor.shape, dtype=dtype)
    return copy, digest_tensor(tensor, dtype, into=copy.reshape(-1))


def digest_tensors(tensors: Mapping[str, Tensor], finite: bool = True) -> dict[str, TensorDigest]:
    """Returns digests by name; several tensors are processed at the same time. `finite`: check that values are
    finite.

    Raises:
        NotFiniteError: a value is not finite; the error names the tensor.
    """

    def digest(name: str) -> TensorDigest:
        try:
            return digest_tensor(tensors[name], finite=finite)
        except NotFiniteError as error:
            raise NotFiniteError(f"{name} holds {error}") from error

    names = sorted(tensors, key=lambda name: -tensors[name].nbytes)
    return dict(zip(names, in_parallel(digest, names, sum(x.nbytes for x in tensors.values())), strict=True))


def in_parallel(action: Callable[[str], T], names: list[str], size: int) -> list[T]:
    """Runs the action for all names, concurrently if the tensors have more than a few bytes; raises the first
    error."""
    if size <= SMALL:
        return [action(name) for name in names]
    with ThreadPoolExecutor(threads(), "weights") as pool:
        return list(pool.map(action, names))


@cache
def threads() -> int:
    """Returns the number of tensors that are processed at a time."""
    return max(1, min(MAX_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))


def write_digests(folder: Path, digests: Mapping[str, TensorDigest]) -> None:
    """Writes the digests into the folder of the tensors."""
    rows = {name: [one.dtype, list(one.shape), one.digest] for name, one in sorted(digests.items())}
    (folder / FILE).write_text(json.dumps({"digest": "xxh3-128", "tensors": rows}), encoding="utf-8")


def read_digests(folder: Path) -> dict[str, TensorDigest] | None:
    """Returns the digests stored in a folder; None if an earlier release or another program wrote it.

    Raises:
        EngineError: the file is invalid.
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
        raise EngineError(f"{file} contains no digests of tensors: {error!r}") from error
