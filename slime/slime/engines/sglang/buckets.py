"""Divides a version of the weights into buckets, the units of sending."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from slime.errors import EngineError
from slime.weights.artifact import weight_files

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Torch's names of the dtypes in safetensors files."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: its file, name, torch dtype (`bfloat16`) and shape."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype.itemsize

    @property
    def size(self) -> int:
        """Returns the bytes."""
        return prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class Bucket:
    """Tensors that are sent as one block of bytes, in this order."""

    entries: tuple[TensorEntry, ...]

    @property
    def size(self) -> int:
        """Returns the bytes."""
        return sum(entry.size for entry in self.entries)

    def read(self, device: str) -> Tensor:
        """Returns the bytes of all tensors on the device, uint8 [size]. Raises EngineError for an unreadable
        file."""
        flat = torch.empty(self.size, dtype=torch.uint8, device=device)
        place = 0
        with ExitStack() as stack:
            try:
                files = {entry.file for entry in self.entries}
                handles = {file: stack.enter_context(safe_open(file, framework="pt")) for file in files}
                for entry in self.entries:
                    tensor = handles[entry.file].get_tensor(entry.name).contiguous()
                    flat[place : place + entry.size].copy_(tensor.reshape(-1).view(torch.uint8))
                    place += entry.size
            except (SafetensorError, OSError) as error:
                raise EngineError(f"cannot read the weights to send: {error}") from error
        return flat


def plan_buckets(folder: str, limit: int) -> list[Bucket]:
    """Returns all tensors of a folder of safetensors files in buckets of at most `limit` bytes.

    A larger tensor has its own bucket. Wider dtypes come first in a bucket, so that every tensor is aligned
    to its item size.

    Raises:
        EngineError: a file cannot be read, or a dtype cannot be sent.
    """
    buckets: list[list[TensorEntry]] = []
    filled = 0
    for entry in _entries(folder):
        if not buckets or filled + entry.size > limit:
            buckets.append([])
            filled = 0
        buckets[-1].append(entry)
        filled += entry.size
    return [Bucket(tuple(sorted(each, key=lambda entry: -entry.itemsize))) for each in buckets]


def _entries(folder: str) -> Iterator[TensorEntry]:
    for file in weight_files(Path(folder)):
        try:
            with safe_open(file, framework="pt") as handle:
                for name in handle.keys():  # noqa: SIM118 (not a dict)
                    view = handle.get_slice(name)
                    if view.get_dtype() not in DTYPES:
                        raise EngineError(
                            f"{name} of {file} is {view.get_dtype()}, which cannot be sent: use "
                            "--update-weight-transport disk"
                        )
                    yield TensorEntry(str(file), name, DTYPES[view.get_dtype()], tuple(view.get_shape()))
        except (SafetensorError, OSError) as error:
            raise EngineError(f"cannot read {file}: {error}") from error
