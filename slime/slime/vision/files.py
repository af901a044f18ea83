"""Stores and transmits a processed image exactly: in a file named by its content, and in requests to an engine."""

from __future__ import annotations

import os
import threading
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError
from torch import Tensor

from slime.errors import DataError

FOLDER = "images"
"""The folder of images in the run folder."""
SUFFIX = ".image"
QUICK = 1
"""zlib's level: screenshots shrink to a hundredth at any level."""
MOST_BYTES = 1 << 30
"""Size limit of one image's tensors."""
KEPT = 64
"""Number of recently read images that a process keeps in memory."""


@dataclass(frozen=True)
class ProcessedImage:
    """`pixel_values`: fp32 [rows * columns, numbers per patch]; `grid`: frames, rows and columns of patches."""

    pixel_values: Tensor
    grid: tuple[int, int, int]

    def to_bytes(self) -> bytes:
        """Returns the compressed image, without loss."""
        tensors = {"grid": torch.tensor(self.grid), "pixel_values": self.pixel_values.float().contiguous()}
        return zlib.compress(safetensors.torch.save(tensors), QUICK)

    @classmethod
    def from_bytes(cls, data: bytes) -> ProcessedImage:
        """Raises DataError if `data` is not such an image."""
        try:
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(data, MOST_BYTES)
            if unpacker.unconsumed_tail or not unpacker.eof:
                raise DataError("an image is cut off, or larger than any model reads")
            tensors = safetensors.torch.load(plain)
            frames, rows, columns = tensors["grid"].tolist()
            pixels = tensors["pixel_values"]
        except (zlib.error, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise DataError(f"bytes that are no processed image: {error!r}") from error
        if pixels.dtype != torch.float32 or pixels.ndim != 2 or len(pixels) != frames * rows * columns:
            raise DataError(
                f"pixel values {list(pixels.shape)} of {pixels.dtype} do not fill {rows} x {columns} patches"
            )
        if not torch.isfinite(pixels).all():
            raise DataError("an image holds values that are not finite")
        return cls(pixels, (frames, rows, columns))


def keep(image: ProcessedImage, folder: Path) -> Path:
    """Stores an image in a folder, unless it is there already, and returns its file."""
    data = image.to_bytes()
    path = folder / f"{xxhash.xxh3_128_hexdigest(data)}{SUFFIX}"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
        temporary.write_bytes(data)
        temporary.replace(path)
    return path


@lru_cache(maxsize=KEPT)
def read(file: str) -> ProcessedImage:
    """Returns the image in a file that `keep` wrote.

    Raises:
        DataError: the file is missing, or its content does not match its name.
    """
    return ProcessedImage.from_bytes(read_bytes(file))


def read_bytes(file: str) -> bytes:
    """Returns the file's bytes, in the form that is sent to an engine. Raises as `read`."""
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"the image {file} of a sample cannot be read: {error}") from error
    if path.name != f"{xxhash.xxh3_128_hexdigest(data)}{SUFFIX}":
        raise DataError(f"the image {file} of a sample is not what it was when it was sampled from")
    return data
