"""Files in shared memory that stay mapped from one version to the next, so that page faults occur only once.

The writer keeps the mappings of the files that it overwrites in turn. A reader keeps its mapping while other files
are written. Keeping a mapping needs no memory: the pages belong to the file.
"""

from __future__ import annotations

import json
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

STEP = 1 << 28
"""Bytes by which a file grows."""
MAX_BYTES = 1 << 40
POPULATE_WRITE = 23
"""Constant of Linux 5.14 and later (madvise(2)), which Python does not define."""
MAX_MAPS = 4
"""Number of files that stay mapped. Two are written in turn; a third is needed while a reader still uses one."""
KINDS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class WrittenMemory:
    """A file written through a mapping that is created once, for the largest possible size of the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.allocated, self.mapped = path, 0, 0
        self.map: mmap.mmap | None = None

    def room(self, at: int, size: int) -> Tensor:
        """Returns `size` bytes of the file from `at` on, as flat uint8.

        Raises:
            OSError: there is not enough memory. Writing without this check would kill the process.
        """
        end = at + size
        if self.map is None or end > len(self.map):
            self._open(end)
        assert self.map is not None
        if end > self.mapped:
            self._allocate(end)
        return torch.frombuffer(self.map, dtype=torch.uint8, count=size, offset=at)

    def cut(self) -> None:
        """Updates the sizes; call it after the file was truncated."""
        self.allocated = self.mapped = min(self.mapped, self.path.stat().st_size)

    def _open(self, end: int) -> None:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self.allocated, status = os.fstat(file).st_size, os.fstatvfs(file)
            most = max(end, self.allocated, min(status.f_blocks * status.f_frsize, MAX_BYTES))
            os.ftruncate(file, most)
            self.map, self.mapped = mmap.mmap(file, most), 0
        finally:
            os.close(file)

    def _allocate(self, end: int) -> None:
        """Allocates memory for the bytes up to `end`, and a step ahead if possible. One call for all pages is several
        times faster than faulting them one by one."""
        assert self.map is not None
        whole = min(end + -end % STEP, len(self.map))
        file = os.open(self.path, os.O_RDWR)
        try:
            if end > self.allocated:
                try:
                    os.posix_fallocate(file, self.allocated, whole - self.allocated)
                except OSError:
                    whole = end
                    os.posix_fallocate(file, self.allocated, whole - self.allocated)
                self.allocated = whole
            elif whole > self.allocated:
                whole = end
        finally:
            os.close(file)
        with suppress(OSError, ValueError):  # an older kernel, on which pages are allocated one by one
            first = self.mapped - self.mapped % mmap.PAGESIZE
            self.map.madvise(POPULATE_WRITE, first, whole - first)
        self.mapped = whole


class WrittenMemories:
    """Mappings of the files that are overwritten in turn, by path."""

    def __init__(self) -> None:
        self._maps: dict[Path, tuple[int, WrittenMemory]] = {}

    def of(self, path: Path) -> WrittenMemory:
        """Returns the mapping of a file; maps it again if another file has replaced it."""
        inode = path.stat().st_ino if path.exists() else -1
        cached = self._maps.pop(path, None)
        memory = cached[1] if cached is not None and cached[0] == inode else WrittenMemory(path)
        path.touch()
        self._maps[path] = path.stat().st_ino, memory
        while len(self._maps) > MAX_MAPS:
            del self._maps[next(iter(self._maps))]
        return memory


class ReadMemories:
    """The tensors of safetensors files in shared memory, without copying."""

    def __init__(self) -> None:
        self._maps: dict[tuple[int, int, int], Tensor] = {}

    def tensors(self, path: Path) -> dict[str, Tensor]:
        """Returns views of the file by name. They always show the current content of the file, even after it is
        overwritten.

        Raises:
            OSError: the file cannot be read.
            SafetensorError: it is not a safetensors file.
        """
        flat = self._map(path)
        tensors: dict[str, Tensor] = {}
        try:
            first = 8 + int.from_bytes(bytes(flat[:8].tolist()), "little")
            header: dict[str, dict[str, Any]] = json.loads(flat[8:first].numpy().tobytes())
            for name, entry in header.items():
                if name != "__metadata__":
                    begin, end = entry["data_offsets"]
                    data = flat[first + begin : first + end]
                    tensors[name] = data.view(KINDS[entry["dtype"]]).reshape(entry["shape"])
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise SafetensorError(f"{path} is not a safetensors file: {error!r}") from error
        return tensors

    def _map(self, path: Path) -> Tensor:
        file = os.open(path, os.O_RDONLY)
        try:
            status = os.fstat(file)
            key = status.st_dev, status.st_ino, status.st_size
            flat = self._maps.pop(key, None)
            flat = _mapped(file, mmap.ACCESS_COPY) if flat is None else flat
        finally:
            os.close(file)
        self._maps[key] = flat
        while len(self._maps) > MAX_MAPS:
            del self._maps[next(iter(self._maps))]
        return flat


def _mapped(file: int, access: int) -> Tensor:
    """Returns the whole file as flat uint8; the tensor keeps the mapping alive."""
    if os.fstat(file).st_size == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(mmap.mmap(file, 0, access=access), dtype=torch.uint8)
