"""A safetensors file that is written tensor by tensor in order of arrival, several at a time.

Only the pieces in transit are in memory, so weights that are distributed over many ranks are never whole on one of
them. Space for the header is reserved before the names are known; the unused rest stays blank, as the format allows
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import torch
from safetensors.torch import save_file
from torch import Tensor

from slime.weights.digests import NotFiniteError, TensorDigest, digest_tensor, threads
from slime.weights.mapped import KINDS, WrittenMemory

HEADER_BYTES = 256
"""Header bytes reserved for each tensor: its name, dtype, shape and position."""
MAX_PENDING_BYTES = 1 << 30
"""Most bytes of tensors that may wait to be written."""
MIN_THREAD_BYTES = 1 << 20
"""Size in bytes from which a tensor is written by its own thread."""
NAMES = {kind: name for name, kind in KINDS.items()}


class TensorFile:
    """Use in a `with` block; the file is complete after `finish`.

    Args:
        path: an existing file is overwritten in place, so its memory is reused.
        tensors: approximate number of tensors.
        memory: mapping through which a file in shared memory is written.
    """

    def __init__(self, path: Path, tensors: int, memory: WrittenMemory | None = None) -> None:
        self.path, self.memory = path, memory
        self.first = 4096 * -(-(8 + HEADER_BYTES * (tensors + 16)) // 4096)
        self.end = 0
        self.places: dict[str, tuple[torch.dtype, tuple[int, ...], int, int]] = {}
        self.digests: dict[str, TensorDigest] = {}
        self.waiting: deque[tuple[int, Future[None]]] = deque()
        self.bytes_waiting = 0
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.pool = ThreadPoolExecutor(threads(), "weights")

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pool.shutdown(cancel_futures=True)
        os.close(self.file)

    def add(self, name: str, tensor: Tensor, dtype: torch.dtype | None = None) -> None:
        """Adds a tensor, which must not change until `finish`.

        Args:
            dtype: to cast floating-point numbers to.

        Raises:
            NotFiniteError: this tensor or an earlier one has a value that is not finite.
            OSError: this tensor or an earlier one could not be written.
        """
        kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        tensor = on_host(tensor.detach(), kind)
        size = tensor.numel() * kind.itemsize
        offset, self.end = self.end, self.end + size
        self.places[name] = kind, tuple(tensor.shape), offset, offset + size
        at = self.first + offset
        mapped = self.memory is not None and size >= MIN_THREAD_BYTES and at % kind.itemsize == 0
        into = self.memory.room(at, size).view(kind) if self.memory is not None and mapped else None

        def write() -> None:
            try:
                self.digests[name] = digest_tensor(tensor, kind, None if mapped else self._writer(at), into)
            except NotFiniteError as error:
                raise NotFiniteError(f"{name} holds {error}") from error

        self._start(write, size)

    def _writer(self, at: int) -> Callable[[memoryview], None]:
        """Returns a function that writes data from byte `at` of the file on."""

        def write_piece(data: memoryview) -> None:
            nonlocal at
            at += _write_at(self.file, data, at)

        return write_piece

    def _start(self, write: Callable[[], None], size: int) -> None:
        if size < MIN_THREAD_BYTES:
            return write()
        self.waiting.append((size, self.pool.submit(write)))
        self.bytes_waiting += size
        while self.bytes_waiting > MAX_PENDING_BYTES:
            self._settle_first()
        return None

    def _settle_first(self) -> None:
        size, written = self.waiting.popleft()
        written.result()
        self.bytes_waiting -= size

    def finish(self) -> dict[str, TensorDigest]:
        """Writes the remaining data, and returns the digests of all tensors by name. Raises as `add`."""
        while self.waiting:
            self._settle_first()
        os.ftruncate(self.file, self.first + self.end)
        entries = {
            name: {"dtype": NAMES[kind], "shape": list(shape), "data_offsets": [begin, end]}
            for name, (kind, shape, begin, end) in self.places.items()
        }
        header = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":")).encode()
        room = self.first - 8
        fits = len(header) <= room
        _write_at(self.file, memoryview(room.to_bytes(8, "little") + header[:room].ljust(room)), 0)
        if not fits or any(begin % kind.itemsize for kind, _, begin, _ in self.places.values()):
            self._rewrite(fits)
        if self.memory is not None:
            self.memory.cut()
        return self.digests

    def _rewrite(self, fits: bool) -> None:
        """Writes the file with the safetensors library, for more tensors than announced, or unaligned tensors."""
        data = Path(self.path).read_bytes()[self.first :]
        tensors = {
            name: torch.frombuffer(bytearray(data[begin:end]), dtype=kind).reshape(shape)
            if end > begin
            else torch.empty(shape, dtype=kind)
            for name, (kind, shape, begin, end) in self.places.items()
        }
        save_file(tensors, str(self.path), metadata={"format": "pt"})


def on_host(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Copies a tensor to the CPU; a GPU casts it first, and copies it to pinned memory, which is faster."""
    if tensor.device.type == "cpu":
        return tensor
    host = torch.empty(tensor.shape, dtype=dtype, pin_memory=tensor.device.type == "cuda")
    return host.copy_(tensor.to(dtype))


def _write_at(file: int, data: memoryview, offset: int) -> int:
    """Writes all data; the operating system may accept it in parts."""
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], offset + written)
    return written
